"""Many small requests to an object store, several at a time, in the loop of its file system.

fsspec's other methods hand each request to the loop's thread and wait for it. With eight threads that wait, the hand-over took as
much processor time as the request.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import Future, wait
from typing import Any, Generic, NamedTuple, TypeVar

R = TypeVar("R")

#: Requests that are open at a time. A store in a data center answers after tens of milliseconds, in which a request takes half a
#: millisecond of this processor.
OPEN_REQUESTS = 32

#: How long the open requests may take to end after an interrupt. Half a request may have taken effect or not.
INTERRUPTED_SECONDS = 5.0


class Answer(NamedTuple, Generic[R]):
    """The result of one request, or its error."""

    value: R | None
    error: Exception | None


def has_loop(file_system: Any) -> bool:
    """Whether a file system has a loop of its own, whose thread runs."""
    return bool(getattr(file_system, "async_impl", False)) and not getattr(file_system, "asynchronous", False)


def in_loop(file_system: Any, requests: Sequence[Callable[[], Awaitable[R]]]) -> list[Answer[R]]:
    """The answers to all requests, in order, when the last one is there.

    After an interrupt no further request begins. Those that are open have a few seconds to end, then they are cancelled.
    """
    import asyncio

    from fsspec.asyn import sync

    answers: dict[int, Answer[R]] = {}
    left = deque(enumerate(requests))
    workers: list[asyncio.Task[None]] = []
    ended: Future[None] = Future()

    async def work() -> None:
        while left:
            place, request = left.popleft()
            try:
                answers[place] = Answer(await request(), None)
            except Exception as error:  # The caller explains it.
                answers[place] = Answer(None, error)

    async def work_together() -> None:
        try:
            workers.extend(asyncio.create_task(work()) for _ in range(min(OPEN_REQUESTS, len(left))))
            await asyncio.gather(*workers)
        finally:
            ended.set_result(None)

    def cancel() -> None:
        for worker in workers:
            worker.cancel()

    try:
        sync(file_system.loop, work_together)
    except BaseException:
        left.clear()
        try:
            wait([ended], INTERRUPTED_SECONDS)
        finally:
            file_system.loop.call_soon_threadsafe(cancel)
        raise
    return [answers[place] for place in range(len(requests))]
