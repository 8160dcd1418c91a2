"""The body of an action that does not come as it should."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from starlette.requests import Request

from databuild_dagster.web import acting
from databuild_dagster.web.acting import MAX_BODY_BYTES, read_body
from databuild_dagster.web.refusals import BadBody, BodyTooLarge


def posted(receive: Callable[[], Awaitable[Any]]) -> Request:
    headers = [(b"content-type", b"application/json"), (b"content-length", b"100")]
    return Request({"type": "http", "method": "POST", "headers": headers}, receive)


def test_a_caller_that_leaves_within_its_body_is_no_mistake_of_ours() -> None:
    async def leaves() -> dict[str, str]:
        return {"type": "http.disconnect"}

    with pytest.raises(BadBody, match="it ended too early"):
        asyncio.run(read_body(posted(leaves)))


def test_a_body_that_never_ends_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(acting, "MAX_SECONDS", 0)

    async def never_ends() -> dict[str, object]:
        await asyncio.Event().wait()
        return {}

    with pytest.raises(BadBody, match="it did not come within 0 seconds"):
        asyncio.run(read_body(posted(never_ends)))


def test_a_body_that_is_longer_than_it_says_is_not_read_to_its_end() -> None:
    n_read = 0

    async def goes_on() -> dict[str, object]:
        nonlocal n_read
        n_read += 1
        return {"type": "http.request", "body": b"x" * (MAX_BODY_BYTES // 2), "more_body": n_read < 9}

    with pytest.raises(BodyTooLarge):
        asyncio.run(read_body(posted(goes_on)))

    assert n_read == 3
