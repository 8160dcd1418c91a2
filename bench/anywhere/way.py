"""The way to a server in a data center: each answer takes some milliseconds more, and what each party asks is counted.

    python -m bench.anywhere.way URL [--latency MILLISECONDS]

It passes requests on as they come, and holds back what the server answers; answers wait at the same time. Connections stay open as
long as the server wants. The parties, what is printed and the lines of the input are those of `bench.anywhere.store`.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import threading
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import NamedTuple
from urllib.parse import urlsplit

from bench.anywhere.store import ADDRESSES, Figures, answer_lines, name_of

METHODS = ("DELETE", "GET", "HEAD", "POST", "PUT")


class Server(NamedTuple):
    """Where it listens, and how many seconds its answers are on the way."""

    host: str
    port: int
    latency: float


class FromClient(asyncio.Protocol):
    """A connection of a party, and the one to the server that belongs to it."""

    def __init__(self, server: Server, figures: Figures) -> None:
        self.server = server
        self.figures = figures
        self.to_client: asyncio.Transport
        self.to_server: asyncio.Transport | None = None
        #: Until the connection to the server is there.
        self.waiting: deque[bytes] = deque()
        self.has_ended = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.to_client = transport
        self.figures.opened(transport.get_extra_info("socket"))
        self.connecting = asyncio.get_running_loop().create_task(self._connect())

    async def _connect(self) -> None:
        loop = asyncio.get_running_loop()
        try:
            await loop.create_connection(lambda: FromServer(self), self.server.host, self.server.port)
        except OSError:
            self.to_client.close()

    def data_received(self, data: bytes) -> None:
        if data.startswith(tuple(f"{method} ".encode() for method in METHODS)):
            method, url, _ = data.partition(b"\r\n")[0].decode().split(" ", 2)
            path, _, query = url.partition("?")
            self.figures.asked(name_of(method, path, query))
        if self.to_server is None:
            self.waiting.append(data)
        else:
            self.to_server.write(data)

    def connection_lost(self, exc: Exception | None) -> None:
        self.figures.closed(self.to_client.get_extra_info("socket"))
        self.has_ended = True
        if self.to_server is not None:
            self.to_server.close()


class FromServer(asyncio.Protocol):
    """What the server answers on one connection."""

    def __init__(self, client: FromClient) -> None:
        self.client = client
        self.held: deque[bytes] = deque()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.client.to_server = transport
        while self.client.waiting:
            transport.write(self.client.waiting.popleft())
        if self.client.has_ended:
            transport.close()

    def data_received(self, data: bytes) -> None:
        self.held.append(data)
        self._after_the_way(self._pass_on)

    def connection_lost(self, exc: Exception | None) -> None:
        self._after_the_way(self._pass_on)

    def _after_the_way(self, do: Callable[[], None]) -> None:
        asyncio.get_running_loop().call_later(self.client.server.latency, do)

    def _pass_on(self) -> None:
        """The oldest piece; the end of the connection when none is left."""
        if self.held:
            self.client.to_client.write(self.held.popleft())
        else:
            self.client.to_client.close()


async def listen(server: Server) -> None:
    loop = asyncio.get_running_loop()
    figures = {party: Figures() for party in ADDRESSES}
    urls = {}
    for party, address in ADDRESSES.items():
        listening = await loop.create_server(partial(FromClient, server, figures[party]), address, 0)
        urls[party] = f"http://{address}:{listening.sockets[0].getsockname()[1]}"
    print(json.dumps(urls), flush=True)
    threading.Thread(target=answer_lines, args=(figures,), daemon=True).start()
    await asyncio.Event().wait()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("url", type=urlsplit)
    parser.add_argument("--latency", type=float, default=0.0, help="milliseconds that each answer is on the way")
    options = parser.parse_args()
    asyncio.run(listen(Server(options.url.hostname, options.url.port, options.latency / 1000)))


if __name__ == "__main__":
    main()
