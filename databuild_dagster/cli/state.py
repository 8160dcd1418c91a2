"""The store and the engine of the home, opened as cheaply as the command allows."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING

import click

from databuild_dagster.cli.home import dagster_home
from databuild_dagster.data.home import store_url_of_home, warehouse_of_home
from databuild_dagster.engine.log_time import clock_is_behind
from databuild_dagster.store.queries.queries import Queries
from databuild_dagster.store.store import Store, open_store

if TYPE_CHECKING:
    from dagster import DagsterInstance

    from databuild_dagster.engine.engine import Engine


def the_store(*, check_projections: bool = True) -> Store:
    """The store alone: no Dagster is imported unless dagster.yaml moves its storage."""
    home = dagster_home()
    url = store_url_of_home(home)
    if url is None:
        from databuild_dagster.bindings.registry.instance import store_url

        url = store_url(the_instance(home))
    return open_store(url) if check_projections else Store(url, check_projections=False)


def the_queries() -> Queries:
    queries = Queries(the_store())
    _look_at_the_clock(queries)
    return queries


def the_warehouse() -> str:
    """Where data goes unless a code location says otherwise."""
    home = dagster_home()
    warehouse = warehouse_of_home(home)
    if warehouse is None:
        from databuild_dagster.bindings.registry.instance import warehouse_of

        warehouse = warehouse_of(the_instance(home))
    return warehouse


def the_instance(home: Path | None = None) -> DagsterInstance:
    """The Dagster instance of the home."""
    from databuild_dagster.bindings.registry.instance import open_instance

    return open_instance(home or dagster_home())


def the_engine() -> Engine:
    """The engine with Dagster's catalog behind it, for commands that change something."""
    from databuild_dagster.bindings.registry.instance import engine_for

    engine = engine_for(the_instance())
    _look_at_the_clock(engine.queries)
    return engine


def _look_at_the_clock(queries: Queries) -> None:
    """Whoever asks is to know why what they see has times that are still to come."""
    if said := clock_is_behind(queries.url, queries.head().at, time.time()):
        click.echo(f"Warning: {said}", err=True)
