"""The workers that call the jobs' code for an executor: a few threads of its host, or the executor itself (rule 9.4)."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import FIRST_COMPLETED, Future, wait
from typing import Any, Protocol

#: How long an executor waits for the end of a call.
LOOK_SECONDS = 1.0
#: Ends that follow each other sooner are recorded together, while no worker is free.
TOGETHER_SECONDS = 0.1

Call = Future[None]


class Workers(Protocol):
    """Make `n_threads` calls at a time."""

    n_threads: int

    def submit(self, function: Callable[..., None], *arguments: Any) -> Call:
        """Make the call when a thread is free."""


class InTurn:
    """Makes each call at once, in the caller's thread."""

    n_threads = 1

    def __init__(self) -> None:
        self._done: Call = Future()
        self._done.set_result(None)

    def submit(self, function: Callable[..., None], *arguments: Any) -> Call:
        """Raises the errors of the call."""
        function(*arguments)
        return self._done


def running_after(calls: set[Call], n_threads: int) -> set[Call]:
    """The running ones of these calls, once one has ended and a worker is free, or after a bounded time.

    Raises an error of an ended call.
    """
    seconds = LOOK_SECONDS
    while calls:
        ended, calls = wait(calls, seconds, FIRST_COMPLETED)
        for call in ended:
            call.result()
        if not ended or len(calls) < n_threads:
            break
        seconds = TOGETHER_SECONDS
    return calls
