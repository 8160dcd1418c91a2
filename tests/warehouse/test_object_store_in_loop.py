"""Small requests to a store run together in the loop of its file system."""

import asyncio
import os
import signal
from functools import partial

import pytest
from fsspec.asyn import AsyncFileSystem

from databuild_dagster.warehouse import object_store as module
from databuild_dagster.warehouse.object_store import OPEN_REQUESTS, has_loop, in_loop
from tests.support.cluster import wait_until


def test_answers_and_errors_come_in_the_order_of_the_requests():
    file_system = AsyncFileSystem(skip_instance_cache=True)
    n_open, most_open = 0, 0

    async def answer(number: int) -> int:
        nonlocal n_open, most_open
        n_open += 1
        most_open = max(most_open, n_open)
        await asyncio.sleep(0)
        n_open -= 1
        if number == 3:
            raise FileNotFoundError(number)
        return number

    answers = in_loop(file_system, [partial(answer, number) for number in range(3 * OPEN_REQUESTS)])

    assert has_loop(file_system)
    assert [one.value for one in answers] == [0, 1, 2, None, *range(4, 3 * OPEN_REQUESTS)]
    assert isinstance(answers[3].error, FileNotFoundError)
    assert most_open == OPEN_REQUESTS


class Blocked:
    """Requests that block until they are released; the last one that may be open interrupts the caller."""

    def __init__(self) -> None:
        self.file_system = AsyncFileSystem(skip_instance_cache=True)
        self.begun, self.ended, self.cancelled = list[int](), list[int](), list[int]()
        self._released = asyncio.Event()

    def requests(self):
        return [partial(self._request, number) for number in range(3 * OPEN_REQUESTS)]

    def release(self) -> None:
        self.file_system.loop.call_soon_threadsafe(self._released.set)

    async def _request(self, number: int) -> None:
        self.begun.append(number)
        if len(self.begun) == OPEN_REQUESTS:
            os.kill(os.getpid(), signal.SIGINT)
        try:
            await self._released.wait()
        except asyncio.CancelledError:
            self.cancelled.append(number)
            raise
        self.ended.append(number)


def test_an_interrupt_waits_for_the_open_requests_and_begins_no_other(monkeypatch):
    blocked, real_wait = Blocked(), module.wait

    def release_and_wait(futures, seconds):
        blocked.release()
        return real_wait(futures, seconds)

    monkeypatch.setattr(module, "wait", release_and_wait)
    monkeypatch.setattr(module, "INTERRUPTED_SECONDS", 60.0)

    with pytest.raises(KeyboardInterrupt):
        in_loop(blocked.file_system, blocked.requests())

    assert sorted(blocked.ended) == sorted(blocked.begun) == list(range(OPEN_REQUESTS))
    assert blocked.cancelled == []


def test_open_requests_that_do_not_end_after_an_interrupt_are_cancelled(monkeypatch):
    blocked = Blocked()
    monkeypatch.setattr(module, "INTERRUPTED_SECONDS", 0.0)

    with pytest.raises(KeyboardInterrupt):
        in_loop(blocked.file_system, blocked.requests())

    wait_until(lambda: len(blocked.cancelled) == OPEN_REQUESTS, "the open requests are cancelled", 10)
    assert sorted(blocked.begun) == list(range(OPEN_REQUESTS))
    assert blocked.ended == []
