"""A SQLite file that many processes open at the same moment."""

from __future__ import annotations

import os
import sqlite3
import threading
import time
from collections.abc import Callable
from pathlib import Path

#: Seconds for which a statement waits for a writer without our lock, such as a backup.
BUSY_TIMEOUT_SECONDS = 30.0
#: Seconds between two attempts to switch a new file to its write-ahead log.
_PAUSE_SECONDS = 0.01


#: How a file is read that this process may not write: beside its writers, by the log that they have made, or as it is.
_BESIDE_WRITERS, _AS_IT_IS = "mode=ro", "immutable=1"


def way_to_read(path: str) -> str | None:
    """How to open a file that this process may only read; None for one that it may write, with the logs beside it."""
    places = [os.path.dirname(path), *([path] if os.path.exists(path) else [])]
    if path == ":memory:" or all(os.access(place, os.W_OK) for place in places):
        return None
    return _BESIDE_WRITERS if os.path.exists(f"{path}-wal") else _AS_IT_IS


def is_read_as_it_is(path: str) -> bool:
    """Whether SQLite would not notice a writer of the file: it cannot lock a file without a write-ahead log there."""
    return way_to_read(path) == _AS_IT_IS


def connected(path: str, *, cached_statements: int = 128) -> sqlite3.Connection:
    """A connection in autocommit, because BEGIN and COMMIT are ours, with a write-ahead log. Raises `sqlite3.Error`."""
    way = way_to_read(path)
    connection = sqlite3.connect(
        path if way is None else f"{Path(path).as_uri()}?{way}",
        uri=way is not None,
        timeout=BUSY_TIMEOUT_SECONDS,
        isolation_level=None,
        check_same_thread=False,
        cached_statements=cached_statements,
    )
    if way is not None:
        return connection
    give_up_at = time.monotonic() + BUSY_TIMEOUT_SECONDS
    while True:
        try:
            connection.execute("PRAGMA journal_mode = WAL")
        except sqlite3.OperationalError as error:
            # SQLite does not wait here: another process is switching the new file.
            if error.sqlite_errorcode != sqlite3.SQLITE_BUSY or time.monotonic() > give_up_at:
                raise
            threading.Event().wait(_PAUSE_SECONDS)
        else:
            return connection


class AtEnd:
    """In a `threading.local`: closes what a thread has opened when the thread ends, or opens another.

    A connection is part of a cycle, and would stay open until the next garbage collection. A forked child closes nothing of
    its parent's.
    """

    def __init__(self, close: Callable[[], object]) -> None:
        self._close = close
        self._pid = os.getpid()

    def __del__(self) -> None:
        if os.getpid() == self._pid:
            self._close()
