"""Streams share one look at the log, are bounded, and leave nothing behind when they end."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Any

import pytest
from starlette.testclient import TestClient

from databuild_dagster.store.errors import StoreUnusable
from databuild_dagster.web import streams as module
from databuild_dagster.web.application import make_application
from databuild_dagster.web.state import State
from databuild_dagster.web.streams import LogStreams, TooManyStreams
from tests.support.pages_world import PagesWorld

#: No wait of these tests is longer.
MAX_SECONDS = 250


@pytest.fixture
def world() -> Any:
    world = PagesWorld()
    world.live("whole")
    yield world
    world.close()


def run(story: Callable[[], Coroutine[Any, Any, None]]) -> None:
    async def bounded() -> None:
        async with asyncio.timeout(MAX_SECONDS):
            await story()

    asyncio.run(bounded())


@asynccontextmanager
async def followed(streams: LogStreams, seq: int | None) -> AsyncIterator[Any]:
    """A stream from a seq, until the block ends."""
    streams.take_place()
    stream = streams.follow(seq)
    yield stream
    await stream.aclose()
    streams.leave()


async def seqs(stream: Any, n: int) -> list[int]:
    """The seqs of the next events."""
    found: list[int] = []
    while len(found) < n:
        text = (await anext(stream)).decode()
        found += [json.loads(line[6:])["seq"] for line in text.splitlines() if line.startswith("data: ")]
    return found


def test_a_stream_from_a_seq_has_every_later_event_once(world: PagesWorld) -> None:
    async def story() -> None:
        async with followed(LogStreams(world.state_behind_pages()), 2) as stream:
            before = await seqs(stream, world.seq - 2)

            await asyncio.to_thread(world.live, "orders@2023-01-01")
            after = await seqs(stream, world.seq - before[-1])

        assert before + after == list(range(3, world.seq + 1))

    run(story)


def test_a_stream_that_is_far_behind_reads_pages_and_misses_nothing(
    world: PagesWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "PAGE", 2)
    world.live("orders@2023-01-01", "orders@2023-01-02")

    async def story() -> None:
        async with followed(LogStreams(world.state_behind_pages()), 0) as stream:
            found = await seqs(stream, world.seq)

        assert found == list(range(1, world.seq + 1))

    run(story)


def test_streams_share_one_reader_which_ends_with_the_last_of_them(world: PagesWorld) -> None:
    async def story() -> None:
        streams = LogStreams(world.state_behind_pages())
        opened = []
        for _ in range(3):
            streams.take_place()
            stream = streams.follow(None)
            await anext(stream)
            opened.append(stream)
        (follower,) = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
        begun = world.seq
        await asyncio.to_thread(world.live, "orders@2023-01-01")

        found = [await seqs(stream, world.seq - begun) for stream in opened]
        for stream in opened:
            await stream.aclose()
            streams.leave()
        await asyncio.gather(follower, return_exceptions=True)

        assert found == [list(range(begun + 1, world.seq + 1))] * 3
        assert (streams.n_open, streams.is_following, follower.cancelled()) == (0, False, True)

    run(story)


def test_streams_that_begin_at_once_share_one_reader(world: PagesWorld) -> None:
    async def story() -> None:
        streams = LogStreams(world.state_behind_pages())
        opened = [streams.follow(None) for _ in range(3)]
        for _ in opened:
            streams.take_place()

        await asyncio.gather(*(anext(stream) for stream in opened))
        readers = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
        for stream in opened:
            await stream.aclose()
            streams.leave()
        await asyncio.gather(*readers, return_exceptions=True)

        assert [reader.cancelled() for reader in readers] == [True]

    run(story)


def test_a_stream_over_a_store_in_trouble_is_refused_and_leaves_its_place(monkeypatch: pytest.MonkeyPatch) -> None:
    def no_engine() -> Any:
        raise StoreUnusable(url="sqlite:///gone.db", why="it is locked")

    monkeypatch.setattr(LogStreams.__init__, "__kwdefaults__", {"most": 1})
    client = TestClient(make_application(State(no_engine, None)), raise_server_exceptions=False)

    errors = [client.get("/api/v1/stream").json()["error"]["type"] for _ in range(2)]

    assert errors == ["NoBuildState", "NoBuildState"]


def test_a_head_request_for_a_stream_ends_at_once(world: PagesWorld) -> None:
    client = TestClient(make_application(world.state_behind_pages()))

    answer = client.head("/api/v1/stream")

    assert (answer.status_code, answer.content) == (200, b"")
    assert answer.headers["content-type"].startswith("text/event-stream")


def test_one_stream_too_many_is_refused(world: PagesWorld) -> None:
    streams = LogStreams(world.state_behind_pages(), most=1)
    streams.take_place()

    with pytest.raises(TooManyStreams, match="1 event streams are open"):
        streams.take_place()


def test_a_refused_stream_is_an_answer_of_one_sentence(world: PagesWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(LogStreams.__init__, "__kwdefaults__", {"most": 0})
    client = TestClient(make_application(world.state_behind_pages()), raise_server_exceptions=False)

    refused = client.get("/api/v1/stream")

    assert (refused.status_code, refused.json()["error"]["type"]) == (503, "TooManyStreams")


def test_every_stream_ends_when_the_server_is_asked_to(world: PagesWorld) -> None:
    async def story() -> None:
        streams = LogStreams(world.state_behind_pages())
        streams.take_place()
        stream = streams.follow(None)
        await anext(stream)
        waiting = asyncio.ensure_future(anext(stream, None))
        await asyncio.sleep(0)

        await asyncio.to_thread(module.end_all_streams)

        assert await waiting is None
        streams.leave()
        assert streams.is_following is False

    run(story)
