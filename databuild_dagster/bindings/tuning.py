"""Makes Dagster's own SQLite writes cheap in processes of ours: 7-50 ms each become 3-6 ms.

Dagster opens a connection for every event, so that each write ends with SQLite's last one out: a checkpoint,
two fsyncs and the removal of the WAL. Here one more connection per file stays open, and a commit does not
wait for the disk; after a loss of power Dagster may miss its last events, but never ours, which are in a
store of their own.

This is the one place outside of `store` that meets SQLAlchemy, for it is Dagster's connections that are
tuned.
"""

import os
import sqlite3
from threading import Lock
from typing import Any

from sqlalchemy import Engine, event

#: Files kept open. Each run of Dagster has one of its own; the oldest are let go.
MAX_KEPT_OPEN = 16

_kept: dict[str, sqlite3.Connection] = {}
_lock = Lock()
_tuned_pid: int | None = None


def tune_dagster_writes() -> None:
    """Tune every SQLite connection that this process opens through SQLAlchemy from now on. Twice is once."""
    global _tuned_pid
    with _lock:
        if _tuned_pid == os.getpid():
            return
        if _tuned_pid is None:
            event.listen(Engine, "connect", _tune)
        _kept.clear()
        _tuned_pid = os.getpid()


def _tune(connection: Any, _record: Any) -> None:
    if not isinstance(connection, sqlite3.Connection):
        return
    connection.execute("PRAGMA synchronous = NORMAL")
    path = _path_of(connection)
    if path:
        _keep_open(path)


def _path_of(connection: sqlite3.Connection) -> str:
    """Empty for a database in memory."""
    for _, name, path in connection.execute("PRAGMA database_list"):
        if name == "main":
            return str(path)
    return ""


def _keep_open(path: str) -> None:
    with _lock:
        if path in _kept:
            return
        kept = sqlite3.connect(path, check_same_thread=False)
        # Opening alone does nothing; only a read attaches to the WAL.
        kept.execute("SELECT count(*) FROM sqlite_master").fetchone()
        _kept[path] = kept
        while len(_kept) > MAX_KEPT_OPEN:
            _kept.pop(next(iter(_kept))).close()
