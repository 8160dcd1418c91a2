"""A few threads that work through a list: daemons for a user's code, a pool for waiting on a disk."""

import os
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import suppress
from math import ceil
from pathlib import Path
from threading import Condition, Thread
from typing import Any, Generic, TypeVar

from databuild_dagster.model.logs import logger

T = TypeVar("T")
R = TypeVar("R")

#: Files are synced this many at a time: a file system writes its journal once for all that wait for it
#: (8.3 ms per instance one by one, 0.5 ms with eight threads).
DISK_THREADS = 8

#: How long running calls may take to end after an interrupt. Spark's jobs end at once; a Python function only when it
#: returns.
STOP_SECONDS = 10.0
#: A log line announces the wait for calls that take longer.
STOPPED_AT_ONCE_SECONDS = 0.5

_log = logger(__name__)

#: The limit of processor time of this process's control group: microseconds per period, or `max`.
CPU_LIMIT = Path("/sys/fs/cgroup/cpu.max")


def n_cores() -> int:
    """The processor cores that this process may use: fewer than the machine has, in a container or with an affinity."""
    found = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    # No such file, or no limit in it.
    with suppress(OSError, ValueError):
        quota, period = CPU_LIMIT.read_text().split()
        found = min(found, ceil(int(quota) / int(period)))
    return max(found, 1)


def in_threads(function: Callable[[T], R], values: Collection[T]) -> list[R]:
    """The results for all values, in order; for functions that mostly wait for a disk."""
    if len(values) < 2:
        return [function(value) for value in values]
    with ThreadPoolExecutor(min(DISK_THREADS, len(values)), "databuild disk") as threads:
        return list(threads.map(function, values))


def in_own_thread(function: Callable[[], R], name: str) -> Future[R]:
    """Run a call that may never end. Its thread does not hold up the end of the process."""
    future: Future[R] = Future()

    def run() -> None:
        try:
            result = function()
        except BaseException as error:  # Raised where the result is asked for.
            future.set_exception(error)
        else:
            future.set_result(result)

    Thread(target=run, name=name, daemon=True).start()
    return future


class DaemonThreads(Generic[T]):
    """Runs submitted calls, `n_threads` at a time, in the order of submission. After a call that raises, none begins.

    A ThreadPoolExecutor would hold up the end of the process for its threads, and for everything still queued.
    Nothing is raised in a thread from outside: a lock that its call takes at that moment would stay taken.
    """

    def __init__(self, n_threads: int, name: str) -> None:
        self.n_threads = n_threads
        self._queue: deque[tuple[Future[T], Callable[..., T], tuple[Any, ...]]] = deque()
        self._running: set[Future[T]] = set()
        self._is_closed = False
        #: Guards all attributes above, and wakes the threads.
        self._changed = Condition()
        for number in range(n_threads):
            Thread(target=self._work, name=f"{name} {number}", daemon=True).start()

    def submit(self, function: Callable[..., T], *arguments: Any) -> Future[T]:
        """Run the call when a thread is free."""
        future: Future[T] = Future()
        with self._changed:
            self._queue.append((future, function, arguments))
            self._changed.notify()
        return future

    def map_ahead(self, function: Callable[..., T], values: Iterable[Any], most: int) -> Iterator[T]:
        """The results for all values, in order; at most `most` calls run or wait at a time."""
        pending = deque[Future[T]]()
        for value in values:
            pending.append(self.submit(function, value))
            if len(pending) >= most:
                yield pending.popleft().result()
        while pending:
            yield pending.popleft().result()

    def close(self) -> None:
        """Begin no further call and cancel waiting calls; each thread ends after its present call."""
        with self._changed:
            self._is_closed = True
            for future, *_ in self._queue:
                future.cancel()
                future.set_running_or_notify_cancel()
            self._queue.clear()
            self._changed.notify_all()

    def stop(self, names: Callable[[], str], seconds: float = STOP_SECONDS) -> None:
        """Close, and wait so long for the running calls, which were asked to end.

        A log line with `names` announces the wait for calls that do not end at once.
        """
        self.close()
        with self._changed:
            running = set(self._running)
        if wait(running, min(seconds, STOPPED_AT_ONCE_SECONDS)).not_done:
            # Ctrl-C, the time-out of a command and Dagster's Terminate are the same signal.
            _log.warning("Stopping %s, for at most %.0f s; Ctrl-C again ends that.", names(), seconds)
            wait(running, seconds)

    def _work(self) -> None:
        while (call := self._next()) is not None:
            future, function, arguments = call
            try:
                result = function(*arguments)
            except BaseException as error:
                with self._changed:
                    self._is_closed = True
                    self._running.discard(future)
                    self._changed.notify_all()
                future.set_exception(error)
            else:
                with self._changed:
                    self._running.discard(future)
                future.set_result(result)

    def _next(self) -> tuple[Future[T], Callable[..., T], tuple[Any, ...]] | None:
        with self._changed:
            self._changed.wait_for(lambda: self._queue or self._is_closed)
            if self._is_closed:
                return None
            call = self._queue.popleft()
            call[0].set_running_or_notify_cancel()
            self._running.add(call[0])
            return call
