"""One writer at a time, first come first served.

SQLite's own busy handler sleeps and retries, so that under load one writer waits for seconds while another gets in
again and again. A kernel lock on a file of its own queues them. A descriptor per thread, since a lock belongs to the
open file: two threads sharing one would both hold it; and a new one after fork, for the same reason.
"""

from __future__ import annotations

import fcntl
import os
import threading
from contextlib import suppress


class WriteLock:
    """The kernel's lock on a file beside the database; `path` None is a database of this process alone."""

    def __init__(self, path: str | None) -> None:
        self.path = path
        self._local = threading.local()
        self._in_memory = threading.RLock()

    def acquire(self) -> None:
        if self.path is None:
            self._in_memory.acquire()
        else:
            fcntl.flock(self._descriptor(self.path), fcntl.LOCK_EX)

    def release(self) -> None:
        """Explicitly: the descriptor stays open for the next time. Of a lock that this thread has not, nothing."""
        if self.path is None:
            with suppress(RuntimeError):
                self._in_memory.release()
        else:
            fcntl.flock(self._descriptor(self.path), fcntl.LOCK_UN)

    def _descriptor(self, path: str) -> int:
        if getattr(self._local, "pid", None) != os.getpid():
            self._local.descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
            self._local.pid = os.getpid()
        return int(self._local.descriptor)
