"""A SQLite file that many processes open at the same moment, and the lock of its writers.

A single process writes at a time, in order of arrival. The lock's file holds a reserve for a full disk.
"""

import fcntl
import os
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import cache, partial
from pathlib import Path

from databuild_dagster.model.logs import logger
from databuild_dagster.model.wording import one_line
from databuild_dagster.store.processes import PROCESSES

#: Seconds for which a statement waits for a writer without our lock, such as a backup.
BUSY_TIMEOUT_SECONDS = 30.0
#: Seconds between two attempts to switch a new file to its write-ahead log.
_PAUSE_SECONDS = 0.01


#: How a file is read that this process may not write: beside its writers, by the log that they have made, or as it is.
_BESIDE_WRITERS, _AS_IT_IS = "mode=ro", "immutable=1"


def way_to_read(path: str) -> str | None:
    """How to open a file that this process may only read; None for a file that it may write, with the logs beside it."""
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
    """In a `threading.local`: closes what a thread has opened when the thread ends, or opens a successor.

    A connection is part of a cycle, and would stay open until the next garbage collection. A forked child closes nothing of
    its parent's.
    """

    def __init__(self, close: Callable[[], object]) -> None:
        self._close = close
        self._pid = os.getpid()

    def __del__(self) -> None:
        if os.getpid() == self._pid:
            self._close()


#: Bytes that `give_back_reserve` gives back to a full disk: room for the log of a clean-up, and for Dagster's own files.
RESERVE_BYTES = 4 * 1024 * 1024
#: The wait for a lock after which a log line names its holder. It is named once for each wait.
SILENT_SECONDS = 10.0
#: The pause between two looks at the waits.
LOOK_SECONDS = 1.0
MAX_COMMAND = 120

_log = logger(__name__)


class WriteLock:
    """The kernel's lock on a file beside the database.

    SQLite's own busy handler sleeps and retries, so that under load a writer waits for seconds while other writers get in again and
    again. Each thread has its own descriptor, because a lock belongs to the open file, and a new descriptor after a fork. It is closed
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


class LockWatch:
    """The waits of a process's threads; it names the process that a writer waits for, if the wait is long.

    The wait for the write lock has no bound, because a long transaction is no fault. But a process that is suspended in a
    transaction, with Ctrl-Z or by a debugger, keeps the lock until it continues, and every other writer would wait in silence.
    A thread, started by the first wait, looks at the waits.
    """

    def __init__(self) -> None:
        self._changed = threading.Condition()
        #: By thread: when its wait is to be announced, and the locked file.
        self._waits: dict[int, tuple[float, str]] = {}
        self._has_thread = False

    @contextmanager
    def watching(self, path: str) -> Iterator[None]:
        """Within the block this thread waits for the lock of a file."""
        thread = threading.get_ident()
        try:
            with self._changed:
                self._waits[thread] = time.monotonic() + SILENT_SECONDS, path
                if not self._has_thread:
                    self._has_thread = self._begin()
                self._changed.notify()
            yield
        finally:
            with self._changed:
                self._waits.pop(thread, None)

    def _begin(self) -> bool:
        # An interpreter that ends begins no thread.
        with suppress(RuntimeError):
            threading.Thread(target=self._look, name="databuild lock watch", daemon=True).start()
            return True
        return False

    def _look(self) -> None:
        pause = threading.Event()
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._waits)
            # Not until the next wait begins: under load waits of a millisecond begin all the time.
            pause.wait(LOOK_SECONDS)
            for path in self._overdue():
                _log.warning("databuild: still waiting for the lock of writers, %s: %s.", path, holder_in_words(path))

    def _overdue(self) -> set[str]:
        with self._changed:
            now = time.monotonic()
            overdue = {thread: path for thread, (at, path) in self._waits.items() if at <= now}
            for thread in overdue:
                del self._waits[thread]
            return set(overdue.values())


def lock_watch() -> LockWatch:
    """The `LockWatch` of this process. A fork has no threads of its parent."""
    return _of_process(os.getpid())


@cache
def _of_process(pid: int) -> LockWatch:
    return LockWatch()


def holder_in_words(path: str) -> str:
    """Which process has a file's lock, as the end of a sentence."""
    pid = _holder(path)
    if pid is None:
        return "another process has it"
    if pid == os.getpid():
        return "another thread of this process has it"
    command = PROCESSES.command_of(pid)
    if command is None:
        return f"process {pid} has it"
    name = f"process {pid} ({one_line(command, most=MAX_COMMAND)})"
    if PROCESSES.is_suspended(pid):
        return f"{name} has it, and is suspended; `kill -CONT {pid}` lets it continue, and `kill -KILL {pid}` ends it"
    return f"{name} has it"


def _holder(path: str) -> int | None:
    """By the kernel's table of locks. None without such a table, and for a process that this process cannot see."""
    try:
        locked = os.stat(path)
        lines = Path("/proc/locks").read_text().splitlines()
    except OSError:
        return None
    place = f"{os.major(locked.st_dev):02x}:{os.minor(locked.st_dev):02x}:{locked.st_ino}"
    for line in lines:
        # `1: FLOCK  ADVISORY  WRITE 4711 fe:00:1234 0 EOF`; one that waits has an arrow after its number.
        fields = line.split()
        if len(fields) > 5 and fields[1] == "FLOCK" and fields[5] == place and int(fields[4]) > 0:
            return int(fields[4])
    return None
