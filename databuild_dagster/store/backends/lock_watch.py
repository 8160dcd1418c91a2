"""Names the process that a writer waits for, if the wait is long.

The wait for the write lock has no bound, because a long transaction is no fault. But a process that is suspended in a
transaction, with Ctrl-Z or by a debugger, keeps the lock until it continues, and every other writer would wait in silence.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path

from databuild_dagster.model.logs import logger
from databuild_dagster.model.wording import one_line
from databuild_dagster.store.processes import PROCESSES

#: The wait for a lock after which a log line names its holder. It is named once for each wait.
SILENT_SECONDS = 10.0
#: The pause between two looks at the waits.
LOOK_SECONDS = 1.0
MAX_COMMAND = 120

_log = logger(__name__)


class LockWatch:
    """The waits of a process's threads. A thread looks at them, which begins with the first one."""

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
    """The one of this process. A fork has no threads of its parent."""
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
    """By the kernel's table of locks. None where there is no such table, and for a process that this one cannot see."""
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
