"""A store in a temporary folder, into which a log is folded; the next one removes what a killed process left.

The lock of the folder says that its process lives: the kernel releases it with the process, however that ends.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from databuild_dagster.store.store import Store

SCRATCH_PREFIX = "databuild-fold-"
#: Folders that are made until one is locked. On a file system without locks no process removes the last one.
MOST_TRIES = 10


@contextmanager
def scratch_store() -> Iterator[Store]:
    """A store in a temporary file, because a big log does not fit into memory. No other process opens it."""
    _remove_abandoned()
    with _locked_folder() as folder:
        store = Store(f"sqlite:///{os.path.join(folder, 'scratch.db')}", shared=False)
        try:
            store.database.connection().execute("PRAGMA synchronous = OFF")
            yield store
        finally:
            store.close()


@contextmanager
def _locked_folder() -> Iterator[str]:
    for _ in range(MOST_TRIES):
        folder = tempfile.mkdtemp(prefix=SCRATCH_PREFIX)
        # Another process may take the new folder for an abandoned one, and remove it before it is locked here.
        if (lock := _lock_of(folder)) is not None and os.path.isdir(folder):
            break
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        if lock is not None:
            os.close(lock)


def _remove_abandoned() -> None:
    """Remove the folders of processes that are gone."""
    with suppress(OSError):
        names = os.listdir(tempfile.gettempdir())
        for name in names:
            folder = os.path.join(tempfile.gettempdir(), name)
            if name.startswith(SCRATCH_PREFIX) and (lock := _lock_of(folder)) is not None:
                shutil.rmtree(folder, ignore_errors=True)
                os.close(lock)


def _lock_of(folder: str) -> int | None:
    """The descriptor with the lock of a folder; None if a process has it, or the folder is gone or another user's."""
    try:
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(descriptor)
        return None
    return descriptor
