"""Makes Dagster's own SQLite writes cheap in processes of ours: 7-50 ms each become 1-3 ms.

Dagster makes an SQLAlchemy engine and a connection for every event, so that each write compiles its statements
anew and ends with SQLite's last one out: a checkpoint, two fsyncs and the removal of the WAL. Here an engine per
file is kept, with its connection, and a commit does not wait for the disk; after a loss of power Dagster may miss
its last events, but never ours, which are in a store of their own.

This is the one place outside of `store` that meets SQLAlchemy, for it is Dagster's connections that are
tuned.
"""

import os
import sqlite3
from threading import Lock
from typing import Any

from sqlalchemy import Engine, create_engine, event
from sqlalchemy.engine import make_url
from sqlalchemy.pool import QueuePool

from databuild_dagster.bindings.adapter.dagster_private import modules_that_make_sqlite_engines

#: Files kept open. Each run of Dagster has one of its own; the oldest are let go.
MAX_KEPT_OPEN = 16


class _KeptEngine:
    """One file's engine, and which file that was: another at the same place is not the same."""

    def __init__(self, url: str, path: str, options: dict[str, Any]) -> None:
        # Dagster's storages write under locks of their own, one at a time; who comes meanwhile gets a connection
        # that is closed again.
        self.engine = create_engine(url, **{**options, "poolclass": QueuePool, "pool_size": 1, "max_overflow": -1})
        self.dispose = self.engine.dispose
        # Dagster says so after each event.
        self.engine.dispose = lambda close=True: None  # type: ignore[method-assign]
        event.listen(self.engine, "connect", _do_not_wait_for_the_disk)
        self._path = path
        self._file: tuple[int, int] | None = None

    def is_of_the_same_file(self) -> bool:
        """Whether what it has open is what lies there."""
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
    """Tune what this process writes to Dagster's SQLite files from now on. Twice is once."""
    for module in modules_that_make_sqlite_engines():
        module.create_engine = _engine_for


def _engine_for(url: str, **options: Any) -> Engine:
    """What Dagster's storages call in the place of SQLAlchemy's `create_engine`."""
    path = make_url(url).database
    if not path or path == ":memory:":
        return create_engine(url, **options)
    with _lock:
        # By process too: a connection does not survive a fork.
        key = (os.getpid(), url)
        kept = _kept.get(key)
        if kept is None or not kept.is_of_the_same_file():
            if kept is not None:
                _kept.pop(key).dispose()
            kept = _kept[key] = _KeptEngine(url, path, options)
            while len(_kept) > MAX_KEPT_OPEN:
                _let_go(next(iter(_kept)))
        return kept.engine


def _let_go(key: tuple[int, str]) -> None:
    kept = _kept.pop(key)
    # A parent's connections are not ours to close.
    kept.dispose(close=key[0] == os.getpid())


def _do_not_wait_for_the_disk(connection: sqlite3.Connection, _record: Any) -> None:
    connection.execute("PRAGMA synchronous = NORMAL")
