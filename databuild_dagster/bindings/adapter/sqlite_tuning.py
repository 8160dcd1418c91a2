"""Makes Dagster's own SQLite writes cheap in processes of ours: 7-50 ms each become 1-3 ms.

Dagster creates an SQLAlchemy engine and a connection for every event. Each write therefore compiles its statements again,
and closing the last connection costs a checkpoint, two fsyncs and the removal of the WAL. This module keeps an engine and
a connection per file, and a commit does not wait for the disk. After a power loss Dagster may lack its last events; our
own store is not affected.

No other module outside of `store` imports SQLAlchemy. This module does because it tunes Dagster's connections.
"""

import os
from threading import Lock
from typing import Any

from sqlalchemy import Engine, create_engine, event
from sqlalchemy.engine import make_url
from sqlalchemy.pool import QueuePool

from databuild_dagster.bindings.adapter.dagster_storage import modules_that_make_sqlite_engines

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
