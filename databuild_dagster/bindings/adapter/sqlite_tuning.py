"""Makes Dagster's own SQLite writes cheap in processes of ours: 7-50 ms each become 1-3 ms.

Dagster creates an SQLAlchemy engine and a connection for every event. Each write therefore compiles its statements again,
and closing the last connection costs a checkpoint, two fsyncs and the removal of the WAL. This module keeps an engine and
a connection per file, and a commit does not wait for the disk. After a power loss Dagster may lack its last events; our
own store is not affected. The file of a new run gets the tables of the index of all runs, where Dagster asks Alembic for them.

No other module outside of `store` imports SQLAlchemy. This module does because it tunes Dagster's connections.
"""

import os
import sqlite3
from contextlib import closing
from threading import Lock
from typing import Any

from sqlalchemy import Engine, create_engine, event
from sqlalchemy.engine import make_url
from sqlalchemy.pool import QueuePool

from databuild_dagster.bindings.adapter.dagster_storage import (
    SqliteEventLogStorage,
    modules_that_make_sqlite_engines,
)

#: Files kept open. Each Dagster run has a file; the oldest are closed.
MAX_KEPT_OPEN = 16


class _KeptEngine:
    """The engine of a file, with the file's identity: a new file at the same path needs a new engine."""

    def __init__(self, url: str, path: str, options: dict[str, Any]) -> None:
        # Dagster's storages write under their own locks, one at a time. A concurrent reader gets a second connection,
        # which is closed after its use.
        self.engine = create_engine(url, **{**options, "poolclass": QueuePool, "pool_size": 1, "max_overflow": -1})
        self.dispose = self.engine.dispose
        # Dagster disposes the engine after each event.
        self.engine.dispose = lambda close=True: None  # type: ignore[method-assign]
        # A commit does not wait for the disk.
        event.listen(self.engine, "connect", lambda opened, _record: opened.execute("PRAGMA synchronous = NORMAL"))
        self._path = path
        self._file: tuple[int, int] | None = None

    def is_of_the_same_file(self) -> bool:
        """Whether the open file is still the file at the path."""
        try:
            found = os.stat(self._path)
        except FileNotFoundError:
            return self._file is None
        if self._file is None:
            self._file = (found.st_dev, found.st_ino)
        return self._file == (found.st_dev, found.st_ino)


_kept: dict[tuple[int, str], _KeptEngine] = {}
_lock = Lock()


def tune_dagster_writes() -> None:
    """Tune this process's writes to Dagster's SQLite files from now on. A second call changes nothing."""
    for module in modules_that_make_sqlite_engines():
        module.create_engine = _engine_for
    if _initdb is not None:
        SqliteEventLogStorage._initdb = _initialize  # type: ignore[assignment,method-assign]


#: Dagster's own.
_initdb: Any = getattr(SqliteEventLogStorage, "_initdb", None)


def _initialize(storage: Any, engine: Engine, for_index_shard: bool = False) -> None:
    """Dagster's storage calls this at its first connection to a file."""
    if for_index_shard or not _has_tables(str(engine.url.database), like=storage.path_for_shard("index")):
        _initdb(storage, engine, for_index_shard=for_index_shard)


def _has_tables(path: str, like: str) -> bool:
    """Whether a file has Dagster's tables and their version; an empty file gets those of the file `like`.

    False is no harm: Dagster looks itself then.
    """
    try:
        with closing(sqlite3.connect(path, isolation_level=None)) as file:
            if file.execute("SELECT count(*) FROM sqlite_master").fetchone()[0] == 0:
                with closing(sqlite3.connect(like)) as made:
                    tables = made.execute(
                        "SELECT sql FROM sqlite_master WHERE sql IS NOT NULL ORDER BY rowid"
                    ).fetchall()
                    versions = made.execute("SELECT version_num FROM alembic_version").fetchall()
                file.execute("PRAGMA journal_mode = WAL")
                file.execute("PRAGMA synchronous = NORMAL")
                file.execute("BEGIN IMMEDIATE")
                for (statement,) in tables:
                    file.execute(statement)
                file.executemany("INSERT INTO alembic_version VALUES (?)", versions)
                file.execute("COMMIT")
            return file.execute("SELECT 1 FROM alembic_version").fetchone() is not None
    except sqlite3.Error:
        return False


def _engine_for(url: str, **options: Any) -> Engine:
    """Dagster's storages call this instead of SQLAlchemy's `create_engine`."""
    path = make_url(url).database
    if not path or path == ":memory:":
        return create_engine(url, **options)
    with _lock:
        # The key has the process: a connection does not survive a fork.
        key = (os.getpid(), url)
        kept = _kept.get(key)
        if kept is None or not kept.is_of_the_same_file():
            if kept is not None:
                _kept.pop(key).dispose()
            kept = _kept[key] = _KeptEngine(url, path, options)
            while len(_kept) > MAX_KEPT_OPEN:
                oldest = next(iter(_kept))
                # The parent process of a fork closes its own connections.
                _kept.pop(oldest).dispose(close=oldest[0] == os.getpid())
        return kept.engine
