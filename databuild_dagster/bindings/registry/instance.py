"""From a Dagster instance to its store, engine, warehouse and cursors, without any configuration.

Every process that opens the instance finds the same store: daemon, web server, code server, run worker, command line.
`data.home` finds it from the files of a DAGSTER_HOME alone.
"""

import fcntl
import os
import sqlite3
import time
from contextlib import suppress
from pathlib import Path
from threading import Lock
from weakref import WeakKeyDictionary

import msgspec
from dagster import DagsterInstance

from databuild_dagster.bindings.adapter.dagster_private import TEMPORARY_HOME_PREFIX
from databuild_dagster.bindings.adapter.dagster_storage import InMemoryRunStorage, SqliteRunStorage
from databuild_dagster.bindings.registry.catalog import DagsterCatalog
from databuild_dagster.data.environment import environment_of
from databuild_dagster.data.home import DB_URL_VARIABLE, WAREHOUSE_NAME, BadHome, sqlite_url, url_of_environment
from databuild_dagster.engine.engine import Engine
from databuild_dagster.engine.follower import AnyCursor, Cursor
from databuild_dagster.engine.log_time import forget_warned
from databuild_dagster.model.wording import one_line
from databuild_dagster.store.store import open_store

_IN_MEMORY = "sqlite://"
_CURSOR_PREFIX = "databuild/"
#: The longest wait for other processes that open the same home: an opening takes less than a second.
OPENING_SECONDS = 30.0
_POLL_SECONDS = 0.02


class UnsupportedInstance(Exception):
    """The store cannot be placed beside this Dagster instance's runs; the message names the setting to make."""


_engines: dict[tuple[int, str], Engine] = {}
#: An ephemeral instance's store exists as long as the instance.
_ephemeral_engines: WeakKeyDictionary[DagsterInstance, Engine] = WeakKeyDictionary()
_lock = Lock()


def engine_for(instance: DagsterInstance) -> Engine:
    """The engine on the instance's store: one per process, made again after a fork. Raises `UnsupportedInstance`."""
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
    """Close this process's engine on a store, if there is one, and forget the warnings given about its log.

    Processes that outlive a deployment, such as tests, need it. An ephemeral instance's engine ends with the instance.
    """
    with _lock:
        engine = _engines.pop((os.getpid(), url), None)
    if engine is not None:
        engine.store.close()
    forget_warned(url)


def open_instance(home: Path) -> DagsterInstance:
    """The Dagster instance of a DAGSTER_HOME. Raises `BadHome` for settings that Dagster refuses."""
    lock = _in_turn(home)
    try:
        return DagsterInstance.from_config(str(home))
    except Exception as error:
        # Trouble with the disk or the server is not that of the settings.
        if isinstance(error, OSError) or is_of_a_database(error):
            raise
        raise BadHome(f"{home / 'dagster.yaml'} cannot be used by Dagster: {one_line(error)}; correct it.") from error
    finally:
        if lock is not None:
            os.close(lock)


def _in_turn(home: Path) -> int | None:
    """A descriptor that holds the lock of a home; None if the home cannot be locked. Processes open a home one after another.

    Processes that create Dagster's tables at once break each other. After `OPENING_SECONDS` a process waits for no other.
    """
    try:
        folder = os.open(home, os.O_RDONLY | os.O_DIRECTORY)
    except OSError:
        return None  # Dagster says what is wrong with the home.
    deadline = time.monotonic() + OPENING_SECONDS
    # Some network file systems have no locks.
    with suppress(OSError):
        while not _has_taken(folder) and time.monotonic() < deadline:
            time.sleep(_POLL_SECONDS)
    return folder


def _has_taken(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def is_of_a_database(error: BaseException | None) -> bool:
    """Whether the driver of a database raised an error, or what it was raised from."""
    while error is not None:
        if isinstance(error, sqlite3.Error) or type(error).__module__.startswith("psycopg"):
            return True
        error = error.__cause__
    return False


def store_url(instance: DagsterInstance) -> str:
    """The URL of the store, which is beside the instance's runs. Raises `UnsupportedInstance`."""
    # The variable names the base of an environment.
    if environment_of(instance.root_directory) is None and (url := url_of_environment()):
        return url
    storage = instance.run_storage
    if isinstance(storage, InMemoryRunStorage):
        return _IN_MEMORY
    if isinstance(storage, SqliteRunStorage):
        return sqlite_url(_base_directory(storage))
    # The storage of dagster-postgres, recognized without an import: it is an optional package.
    if (url := getattr(storage, "postgres_url", None)) is not None:
        return str(url)
    raise UnsupportedInstance(
        f"The Dagster instance keeps its runs in {type(storage).__name__}, which cannot hold databuild's store; "
        f"set {DB_URL_VARIABLE}=postgresql+psycopg://user:password@host/database for every process of it."
    )


def warehouse_of(instance: DagsterInstance) -> str:
    """The folder for data, unless the code location names its own."""
    if (environment := environment_of(instance.root_directory)) is not None:
        return environment.root
    return str(Path(instance.root_directory).absolute() / WAREHOUSE_NAME)


def temporary_home_of(instance: DagsterInstance) -> str | None:
    """The home of an instance if a command of Dagster made it, for want of DAGSTER_HOME, and removes it at its end."""
    home = Path(instance.root_directory)
    return str(home) if home.name.startswith(TEMPORARY_HOME_PREFIX) else None


class DagsterCursors:
    """A `CursorStorage` beside the cursors of Dagster's daemon, which all processes of a deployment share."""

    def __init__(self, instance: DagsterInstance) -> None:
        self._instance = instance

    def load(self, name: str, kind: type[AnyCursor]) -> AnyCursor | None:
        key = _CURSOR_PREFIX + name
        text = self._instance.daemon_cursor_storage.get_cursor_values({key}).get(key)
        return None if text is None else msgspec.json.decode(text, type=kind)

    def store(self, name: str, cursor: Cursor) -> None:
        self._instance.daemon_cursor_storage.set_cursor_values(
            {_CURSOR_PREFIX + name: msgspec.json.encode(cursor).decode()}
        )


def new_engine(instance: DagsterInstance) -> Engine:
    """An engine that this process does not share, on the store of an instance. Raises `UnsupportedInstance`."""
    return _open(store_url(instance), instance)


def _open(url: str, instance: DagsterInstance) -> Engine:
    catalog = DagsterCatalog(instance)
    engine = Engine(open_store(url, None if url == _IN_MEMORY else instance.root_directory), catalog)
    catalog.look_up_other_locations_with(engine.queries.datasets.get)
    return engine


def _base_directory(storage: SqliteRunStorage) -> Path:
    """The folder above Dagster's `history/`, or the folder that the instance's configuration names."""
    if storage.inst_data:
        directory = Path(storage.inst_data.config_dict["base_dir"])
    else:
        # The default storage has no configuration, only its connection string.
        directory = Path(storage._conn_string.removeprefix("sqlite:///")).parent
    return directory.parent if directory.name == "history" else directory
