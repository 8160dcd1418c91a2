"""The Dagster home of a command, and its store and engine, opened as cheaply as the command allows."""

from __future__ import annotations

import os
import shlex
import time
from collections.abc import Callable, Iterable, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import click

from databuild_dagster.data.dynamic_keys import dynamic_keys
from databuild_dagster.data.environment import ENVIRONMENT_VARIABLE
from databuild_dagster.data.home import HOME_VARIABLE, check_writable, store_url_of_home, the_home, warehouse_of_home
from databuild_dagster.engine.log_time import clock_is_behind
from databuild_dagster.store.errors import LogWentBack
from databuild_dagster.store.queries.queries import Queries
from databuild_dagster.store.store import Store, open_store

if TYPE_CHECKING:
    from dagster import DagsterInstance

    from databuild_dagster.bindings.registry.catalog import DagsterCatalog
    from databuild_dagster.bindings.registry.plain_inputs import PlainPartitions
    from databuild_dagster.engine.engine import Engine
    from databuild_dagster.model.datasets import Catalog, DatasetSpec
    from databuild_dagster.model.refs import Ref


def home_to_write() -> Path:
    """The home of a command that starts processes; without a writable home each would fail. Raises `BadHome`."""
    home = dagster_home()
    check_writable(home)
    return home


def dagster_home() -> Path:
    """The home, made and put into the environment when the project's own is used. Raises `BadHome`."""
    home, is_new = the_home()
    if not os.environ.get(HOME_VARIABLE) or os.environ.get(ENVIRONMENT_VARIABLE):
        os.environ[HOME_VARIABLE] = str(home)
    if is_new:
        shown = shlex.quote(str(home))
        click.echo(
            f"Created the project's own Dagster home. For `dagster` and `dg` too: export {HOME_VARIABLE}={shown}",
            err=True,
        )
    return home


def the_store(*, check_projections: bool = True) -> Store:
    """The store alone: no Dagster is imported unless dagster.yaml moves its storage."""
    home = dagster_home()
    url = store_url_of_home(home)
    if url is None:
        from databuild_dagster.bindings.registry.instance import store_url

        url = store_url(the_instance(home))
    return open_store(url, str(home)) if check_projections else Store(url, check_projections=False)


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
    """The Dagster instance of the home. Opening an instance writes to the home. Raises `BadHome`."""
    from databuild_dagster.bindings.registry.instance import open_instance

    home = home or dagster_home()
    check_writable(home)
    return open_instance(home)


def the_engine() -> Engine:
    """The engine with Dagster's catalog behind it, for commands that change something."""
    home = dagster_home()
    if (engine := recorded_engine(home)) is None:
        from databuild_dagster.bindings.registry.instance import engine_for

        engine = engine_for(the_instance(home))
    _look_at_the_clock(engine.queries)
    return engine


def recorded_engine(home: Path) -> Engine | None:
    """The engine without Dagster, whose catalog imports Dagster when it has to be asked; None if dagster.yaml moves the storage."""
    from databuild_dagster.engine.engine import Engine

    if (url := store_url_of_home(home)) is None:
        return None
    catalog = _LateCatalog(home)
    engine = Engine(open_store(url, str(home)), cast("Catalog", catalog))
    catalog.dataset_of = engine.queries.datasets.get
    return engine


def the_catalog() -> Catalog:
    """Dagster's catalog alone, for a command that only asks whether a key is a partition."""
    return cast("Catalog", _LateCatalog(dagster_home()))


class HomeInstance:
    """Dagster's instance, opened by the first use of anything but the keys of dynamic partitions in the home's own file."""

    def keys_of_home(self, name: str) -> Sequence[str] | None:
        """The keys of dynamic partitions; None if only Dagster can read them."""
        return dynamic_keys(dagster_home(), name)

    def get_dynamic_partitions(self, name: str) -> Sequence[str]:
        keys = self.keys_of_home(name)
        return self._opened.get_dynamic_partitions(name) if keys is None else keys

    @cached_property
    def _opened(self) -> DagsterInstance:
        return the_instance()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._opened, name)


class _LateCatalog:
    """Dagster's catalog, opened by the first question that texts alone do not answer: a command without one saves two seconds."""

    def __init__(self, home: Path) -> None:
        self._home = home
        self.dataset_of: Callable[[str], DatasetSpec | None] = lambda asset: None
        #: By name, the dynamic keys in the home's own file.
        self._dynamic: dict[str, frozenset[str]] = {}

    def why_not(self, dataset: DatasetSpec, partition_key: str | None) -> str | None:
        """None for a partition that surely exists; Dagster's catalog judges every other partition."""
        if self._surely_has(dataset, partition_key):
            return None
        return self._dagster.why_not(dataset, partition_key)

    def _surely_has(self, dataset: DatasetSpec, partition_key: str | None) -> bool:
        from databuild_dagster.bindings.registry.plain_keys import dynamic_name, plainly_has

        if (text := dataset.partitions) is None or partition_key is None:
            return text is partition_key
        if (name := dynamic_name(text)) is not None:
            if name not in self._dynamic:
                self._dynamic[name] = frozenset(dynamic_keys(self._home, name) or ())
            return partition_key in self._dynamic[name]
        return plainly_has(self._plain.dimensions(text), partition_key)

    def absent(self, dataset: DatasetSpec, partition_keys: Iterable[str | None]) -> dict[str | None, str]:
        return {key: why for key in partition_keys if (why := self.why_not(dataset, key)) is not None}

    def left_out(self, dataset: DatasetSpec, partition_keys: Iterable[str | None]) -> frozenset[str | None]:
        unsure = [key for key in partition_keys if not self._surely_has(dataset, key)]
        return self._dagster.left_out(dataset, unsure) if unsure else frozenset()

    def inputs(self, dataset: DatasetSpec, partition_key: str | None) -> tuple[Ref, ...]:
        refs = self._plain.inputs(dataset, partition_key)
        return self._dagster.inputs(dataset, partition_key) if refs is None else refs

    def launchable(
        self, dataset: DatasetSpec, partition_keys: tuple[str | None, ...], most: int
    ) -> tuple[tuple[str | None, ...], ...]:
        sets = self._plain.launchable(dataset, partition_keys, most)
        return self._dagster.launchable(dataset, partition_keys, most) if sets is None else sets

    @cached_property
    def _plain(self) -> PlainPartitions:
        from databuild_dagster.bindings.registry.plain_inputs import PlainPartitions

        return PlainPartitions(time.time(), self.dataset_of)

    @cached_property
    def _dagster(self) -> DagsterCatalog:
        from databuild_dagster.bindings.registry.catalog import DagsterCatalog, LateInstance

        catalog = DagsterCatalog(LateInstance(lambda: the_instance(self._home)))
        catalog.look_up_other_locations_with(self.dataset_of)
        return catalog

    def __getattr__(self, name: str) -> Any:
        return getattr(self._dagster, name)


def _look_at_the_clock(queries: Queries) -> None:
    """Warn if the clock is behind the log, so that times in the answer lie in the future, or if the log went back."""
    head = queries.events.head()
    if said := clock_is_behind(queries.events, head.at, time.time()):
        click.echo(f"Warning: {said}", err=True)
    try:
        queries.events.check_head(head)
    except LogWentBack as went_back:
        click.echo(f"Warning: {went_back}", err=True)
