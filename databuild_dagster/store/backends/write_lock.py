"""One writer of a SQLite file at a time, in order of arrival. The lock's file holds a reserve for a full disk."""

from __future__ import annotations

import fcntl
import os
import threading
from contextlib import suppress
from functools import partial

from databuild_dagster.store.backends.lock_watch import lock_watch
from databuild_dagster.store.backends.sqlite_file import AtEnd

#: What `give_back_reserve` gives back to a full disk: room for the log of a clean-up, and for Dagster's own files.
RESERVE_BYTES = 4 * 1024 * 1024


class WriteLock:
    """The kernel's lock on a file beside the database.

    SQLite's own busy handler sleeps and retries, so that under load one writer waits for seconds while another gets in again and
    again. Each thread has its own descriptor, because a lock belongs to the open file, and a new one after a fork. It is closed
    when its thread ends. A `path` of None is a database of this process alone.
    """

    def __init__(self, path: str | None) -> None:
        self.path = path
        self._local = threading.local()
        self._in_memory = threading.RLock()

    def acquire(self) -> None:
        if self.path is None:
            self._in_memory.acquire()
            return
        descriptor = self._descriptor(self.path)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            with lock_watch().watching(self.path):
                fcntl.flock(descriptor, fcntl.LOCK_EX)

    def release(self) -> None:
        """The descriptor stays open for the next time. A lock that this thread does not have is left alone."""
        if self.path is None:
            with suppress(RuntimeError):
                self._in_memory.release()
        else:
            fcntl.flock(self._descriptor(self.path), fcntl.LOCK_UN)

    def give_back_reserve(self) -> None:
        """Empty the lock's file if the disk is nearly full."""
        if self.path is None or not os.path.exists(self.path):
            return
        with open(self.path, "r+b") as file:
            if _free_bytes(file.fileno()) < RESERVE_BYTES:
                file.truncate(0)

    def _descriptor(self, path: str) -> int:
        if getattr(self._local, "pid", None) != os.getpid():
            self._local.descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
            self._local.pid = os.getpid()
            self._local.at_end = AtEnd(partial(os.close, self._local.descriptor))
            _keep_reserve(self._local.descriptor)
        return int(self._local.descriptor)


def _keep_reserve(descriptor: int) -> None:
    """The file of the lock has no contents of its own, so it holds the reserve, unless the disk is nearly full."""
    with suppress(OSError):
        if os.fstat(descriptor).st_size < RESERVE_BYTES and _free_bytes(descriptor) > 4 * RESERVE_BYTES:
            os.posix_fallocate(descriptor, 0, RESERVE_BYTES)


def _free_bytes(descriptor: int) -> int:
    disk = os.fstatvfs(descriptor)
    return disk.f_bavail * disk.f_frsize
