"""A few threads that work through a list: daemons for a user's code, a pool for waiting on a disk."""

import ctypes
import os
from collections.abc import Callable, Collection
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import suppress
from math import ceil
from pathlib import Path
from queue import SimpleQueue
from threading import Thread, get_ident
from typing import Any, Generic, TypeVar

T = TypeVar("T")
R = TypeVar("R")

#: Files are synced this many at a time: a file system writes its journal once for all that wait for it
#: (8.3 ms per instance one by one, 0.5 ms with eight threads).
DISK_THREADS = 8


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


class DaemonThreads(Generic[T]):
    """Runs submitted calls, `n_threads` at a time, in the order of submission.

    A ThreadPoolExecutor would hold up the end of the process for its threads, and for everything still queued.
    """

    def __init__(self, n_threads: int, name: str) -> None:
        self._queue: SimpleQueue[tuple[Future[T], Callable[..., T], tuple[Any, ...]] | None] = SimpleQueue()
        self._futures: list[Future[T]] = []
        self.n_threads = n_threads
        #: The threads that make a call.
        self._calling: dict[int, Future[T]] = {}
        for number in range(n_threads):
            Thread(target=self._work, name=f"{name} {number}", daemon=True).start()

    def submit(self, function: Callable[..., T], *arguments: Any) -> Future[T]:
        """Run the call when a thread is free."""
        future: Future[T] = Future()
        self._futures.append(future)
        self._queue.put((future, function, arguments))
        return future

    def close(self) -> None:
        """Begin no further call; each thread ends after its present one."""
        for future in self._futures:
            future.cancel()
        for _ in range(self.n_threads):
            self._queue.put(None)

    def interrupt(self, seconds: float) -> None:
        """Close, raise KeyboardInterrupt in each call that runs, and wait so long for their ends.

        A call that waits outside of Python gets it when that wait ends, perhaps later than this returns.
        """
        self.close()
        calling = dict(self._calling)
        for thread in calling:
            ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread), ctypes.py_object(KeyboardInterrupt))
        wait(calling.values(), seconds)

    def _work(self) -> None:
        # An interrupt may come when the call has just ended.
        with suppress(KeyboardInterrupt):
            while (item := self._queue.get()) is not None:
                future, function, arguments = item
                if not future.set_running_or_notify_cancel():
                    continue
                self._calling[get_ident()] = future
                try:
                    future.set_result(function(*arguments))
                except BaseException as error:
                    future.set_exception(error)
                finally:
                    del self._calling[get_ident()]
