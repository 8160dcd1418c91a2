"""Event streams: each follows the log from its own seq, and all share a reader of the end of the log.

A single task reads the log while any stream is open. It keeps the last events, encoded once; a stream that is
further behind reads pages of its own until it has caught up.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator
from typing import Final, NamedTuple
from weakref import WeakSet

import msgspec

from databuild_dagster.engine.wording import encoded
from databuild_dagster.model.errors import DatabuildError
from databuild_dagster.model.logs import logger
from databuild_dagster.web.api import log
from databuild_dagster.web.state import State

#: Streams at once.
MAX_STREAMS: Final = 100
#: Seconds between two looks at the end of the log.
LOOK_SECONDS: Final = 0.5
#: Seconds after which a silent stream sends a comment, by which both sides notice that the other is gone.
SILENCE_SECONDS: Final = 15.0
#: Milliseconds after which a browser connects again.
RETRY_MILLISECONDS: Final = 2_000
#: Events of a page, and the number of last events kept for all streams.
PAGE: Final = 200
KEPT: Final = 1_000


_all: WeakSet[LogStreams] = WeakSet()
_logger = logger(__name__)


class TooManyStreams(DatabuildError):
    """{most} event streams are open, and the web server serves no further one."""

    hint = "Close some pages, or read /databuild/api/v1/log from time to time."


def end_all_streams() -> None:
    """End the streams of this process, because its web server ends: it waits for each answer to be complete."""
    for streams in list(_all):
        streams.end()


class _Sent(NamedTuple):
    seq: int
    text: bytes


class LogStreams:
    """The open streams of a web server."""

    def __init__(self, state: State, *, most: int = MAX_STREAMS) -> None:
        self._state = state
        self._most = most
        self._n_open = 0
        self._kept: deque[_Sent] = deque(maxlen=KEPT)
        #: The last event that was read for all.
        self._seq = 0
        self._moved = asyncio.Condition()
        self._follower: asyncio.Task[None] | None = None
        self._starting = asyncio.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._is_ending = False
        _all.add(self)

    @property
    def n_open(self) -> int:
        """The number of open streams."""
        return self._n_open

    @property
    def is_following(self) -> bool:
        """Whether the log is looked at."""
        return self._follower is not None

    def take_place(self) -> None:
        """Count a stream before its first byte. Raises `TooManyStreams`."""
        if self._n_open >= self._most:
            raise TooManyStreams(most=self._most)
        self._n_open += 1

    def leave(self) -> None:
        """Give a place back; the log is not looked at any more after the last stream."""
        self._n_open -= 1
        if self._n_open == 0 and self._follower is not None:
            self._follower.cancel()
            self._follower = None

    def end(self) -> None:
        """End every stream soon; from any thread, and from a signal handler."""
        self._is_ending = True
        if self._loop is not None and not self._loop.is_closed():
            asyncio.run_coroutine_threadsafe(self._wake(), self._loop)

    async def _wake(self) -> None:
        async with self._moved:
            self._moved.notify_all()

    async def start(self) -> None:
        """Start the reader of the log for a stream that has taken its place, unless it runs. Raises `StoreUnusable`."""
        async with self._starting:
            if self._follower is None:
                self._loop = asyncio.get_running_loop()
                self._seq = await self._state.ask(self._head)
                self._kept.clear()
                self._follower = asyncio.create_task(self._look())

    async def follow(self, after: int | None) -> AsyncIterator[bytes]:
        """The events after a seq, or after the end of the log, as they come; for a stream that has taken its place.

        It ends when the store cannot be read: the answer has begun, and a client that connects again gets the reason.
        """
        await self.start()
        seq = self._seq if after is None else after
        yield f"retry: {RETRY_MILLISECONDS}\nid: {seq}\n\n".encode()
        while not self._is_ending:
            try:
                page = await self._page_after(seq)
            except DatabuildError:
                return
            for sent in page:
                yield sent.text
                seq = sent.seq
            if not page and not await self._wait_beyond(seq):
                yield b": nothing new\n\n"

    async def _page_after(self, seq: int) -> list[_Sent]:
        if seq >= self._seq:
            return []
        if self._kept and self._kept[0].seq <= seq + 1:
            return [sent for sent in self._kept if sent.seq > seq]
        return await self._state.ask(lambda: self._read(seq))

    async def _wait_beyond(self, seq: int) -> bool:
        """Whether the log has moved before the silence became too long."""
        try:
            async with asyncio.timeout(SILENCE_SECONDS):
                async with self._moved:
                    await self._moved.wait_for(lambda: self._seq > seq or self._is_ending)
        except TimeoutError:
            return False
        return True

    async def _look(self) -> None:
        while True:
            await asyncio.sleep(LOOK_SECONDS)
            try:
                page = await self._state.ask(self._news)
            except DatabuildError:
                # The store is locked, or its server is away: the next look finds what this one missed.
                continue
            except Exception:
                _logger.exception("The event log cannot be followed; the pages try again.")
                await asyncio.sleep(SILENCE_SECONDS)
                continue
            if page:
                async with self._moved:
                    self._kept.extend(page)
                    self._seq = page[-1].seq
                    self._moved.notify_all()

    def _head(self) -> int:
        return self._state.engine.queries.events.head().seq

    def _news(self) -> list[_Sent]:
        return self._read(self._seq) if self._head() > self._seq else []

    def _read(self, after: int) -> list[_Sent]:
        return [
            _Sent(
                event.seq,
                b"id: %d\nevent: log\ndata: %s\n\n" % (event.seq, msgspec.json.encode(event, enc_hook=encoded)),
            )
            for event in log(self._state, after, PAGE)
        ]
