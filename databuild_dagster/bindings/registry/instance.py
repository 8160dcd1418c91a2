"""From a Dagster instance to its store, its engine and its warehouse, without any configuration.

The same instance gives the same store in every process that opens it: daemon, web server, code server, run
worker, command line. `home` answers the same from the files of a DAGSTER_HOME alone.
"""

import os
from pathlib import Path
from threading import Lock
from weakref import WeakKeyDictionary

from dagster import DagsterInstance

from databuild_dagster.bindings.adapter.dagster_private import InMemoryRunStorage, SqliteRunStorage
from databuild_dagster.bindings.registry.catalog import DagsterCatalog
from databuild_dagster.data.home import DB_URL_VARIABLE, WAREHOUSE_NAME, sqlite_url, url_of_environment
from databuild_dagster.engine.engine import Engine
from databuild_dagster.engine.log_time import forget_warned
from databuild_dagster.store.store import open_store

_IN_MEMORY = "sqlite://"


class UnsupportedInstance(Exception):
    """This Dagster instance has no place for our store; the message says what to set."""


_engines: dict[tuple[int, str], Engine] = {}
#: An ephemeral instance's store lives and dies with it.
_ephemeral_engines: WeakKeyDictionary[DagsterInstance, Engine] = WeakKeyDictionary()
_lock = Lock()


def engine_for(instance: DagsterInstance) -> Engine:
    """The engine on the instance's store; one per process, new after a fork. Raises `UnsupportedInstance`."""
    url = store_url(instance)
    with _lock:
        if url == _IN_MEMORY:
            if instance not in _ephemeral_engines:
                _ephemeral_engines[instance] = _open(url, instance)
            return _ephemeral_engines[instance]
        key = (os.getpid(), url)
        if key not in _engines:
            _engines[key] = _open(url, instance)
        return _engines[key]


def close_engine(url: str) -> None:
    """Close the engine on a store, if this process has one, with all that the process remembers of that store's log.

    For processes that outlive a deployment, such as tests. An ephemeral instance's engine goes with the instance.
    """
    with _lock:
        engine = _engines.pop((os.getpid(), url), None)
    if engine is not None:
        engine.store.close()
    forget_warned(url)


def open_instance(home: Path) -> DagsterInstance:
    """The Dagster instance of a DAGSTER_HOME."""
    return DagsterInstance.from_config(str(home))


def store_url(instance: DagsterInstance) -> str:
    """Where the instance's wants, job runs and instances are recorded: beside its runs. Raises `UnsupportedInstance`."""
    if url := url_of_environment():
        return url
    storage = instance.run_storage
    if isinstance(storage, InMemoryRunStorage):
        return _IN_MEMORY
    if isinstance(storage, SqliteRunStorage):
        return sqlite_url(_base_directory(storage))
    # dagster-postgres', which is not imported for this: most have not installed it.
    if (url := getattr(storage, "postgres_url", None)) is not None:
        return str(url)
    raise UnsupportedInstance(
        f"The Dagster instance keeps its runs in {type(storage).__name__}, where databuild has no place; "
        f"set {DB_URL_VARIABLE}=postgresql+psycopg://user:password@host/database for every process of it."
    )


def warehouse_of(instance: DagsterInstance) -> str:
    """Where data goes unless the code location says otherwise."""
    return str(Path(instance.root_directory).absolute() / WAREHOUSE_NAME)


def _open(url: str, instance: DagsterInstance) -> Engine:
    store = open_store(url)
    catalog = DagsterCatalog(instance)
    engine = Engine(store, catalog)
    catalog.look_up_other_locations_with(engine.queries.dataset)
    return engine


def _base_directory(storage: SqliteRunStorage) -> Path:
    """Dagster's own files lie in `history/` of it, unless its run storage was placed by hand."""
    directory = Path(storage.inst_data.config_dict["base_dir"]) if storage.inst_data else _directory_of(storage)
    return directory.parent if directory.name == "history" else directory


def _directory_of(storage: SqliteRunStorage) -> Path:
    # The default storage is built without configuration; its connection string is all it keeps.
    return Path(storage._conn_string.removeprefix("sqlite:///")).parent
