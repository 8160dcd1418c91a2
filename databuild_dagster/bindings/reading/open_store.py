"""The store of a home, or of a Dagster instance, opened for reading outside of Dagster."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from databuild_dagster.data.home import existing_home, store_url_of_home
from databuild_dagster.model.errors import DatabuildError, InvalidRequest
from databuild_dagster.store.store import Store, open_store

if TYPE_CHECKING:
    from dagster import DagsterInstance


class NothingBuilt(DatabuildError):
    """Nothing was ever built in {home}: there is no {path}."""

    hint = "Name the home that has builds, by home= or DAGSTER_HOME, or build something: `databuild build REF`."


@contextmanager
def opened_store(home: str | Path | None, instance: "DagsterInstance | None") -> Iterator[Store]:
    """Open the store for the block only: a notebook is open for days, and its home may be created again meanwhile.

    Raises `NothingBuilt`, `BadHome`, and `InvalidRequest` when both are given.
    """
    if instance is not None:
        if home is not None:
            raise InvalidRequest(what="home", value=str(home), why="instance= has a home already; give one of them")
        from databuild_dagster.bindings.registry.instance import engine_for

        yield engine_for(instance).store
        return
    store = open_store(existing_store_url(existing_home(home)))
    try:
        yield store
    finally:
        store.close()


def existing_store_url(home: Path) -> str:
    """The URL of the store. Raises `NothingBuilt`, because opening a store that does not exist would create it."""
    url = store_url_of_home(home)
    if url is None:
        from databuild_dagster.bindings.registry.instance import open_instance, store_url

        url = store_url(open_instance(home))
    path = url.removeprefix("sqlite:///")
    if path != url and not os.path.exists(path):
        raise NothingBuilt(home=home, path=path)
    return url
