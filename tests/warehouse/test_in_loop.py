"""Small requests to a store run together in the loop of its file system."""

import asyncio
from functools import partial

from fsspec.asyn import AsyncFileSystem

from databuild_dagster.warehouse.in_loop import OPEN_REQUESTS, has_loop, in_loop


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


def test_no_request_is_no_work():
    assert in_loop(AsyncFileSystem(skip_instance_cache=True), []) == []
