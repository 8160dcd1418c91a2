"""An S3 server (moto's) in a process of its own, which counts what each of two parties asks, and its bytes.

    python -m bench.anywhere.store [--latency MILLISECONDS]

Each request waits for the latency before the server looks at it, as many at once as come: the way to a store in a data center.

The parties have an address each, so a connection tells its party. The bytes are the kernel's counters of the connection
(`TCP_INFO`): with headers, without the packets around them. Prints the two urls as JSON; each line of its input is answered
by the figures since the line before.
"""

from __future__ import annotations

import argparse
import json
import os
import socket
import struct
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable
from typing import Any

#: The builder has an address of its own, everything else the other.
ADDRESSES = {"builder": "127.0.0.2", "spark": "127.0.0.1"}
#: Place of `tcpi_bytes_acked` in the kernel's `struct tcp_info`; `tcpi_bytes_received` follows it.
_BYTES_ACKED = 120
_INFO_BYTES = 136

App = Callable[[dict[str, Any], Callable[..., Any]], Iterable[bytes]]


class Figures:
    """Requests and bytes of one party."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._open: dict[socket.socket, tuple[int, int]] = {}
        self._requests: Counter[str] = Counter()
        self._contents: Counter[str] = Counter()
        self._sent = self._received = 0

    def opened(self, connection: socket.socket) -> None:
        with self._lock:
            self._open[connection] = (0, 0)

    def closed(self, connection: socket.socket) -> None:
        with self._lock:
            self._count(connection)
            self._open.pop(connection, None)

    def asked(self, request: str) -> None:
        with self._lock:
            self._requests[request] += 1

    def answered(self, request: str, n_bytes: int) -> None:
        with self._lock:
            self._contents[request] += n_bytes

    def taken(self) -> dict[str, Any]:
        """The figures since the last call."""
        with self._lock:
            for connection in self._open:
                self._count(connection)
            found = {
                "sent": self._sent,
                "received": self._received,
                "requests": dict(self._requests),
                "contents": dict(self._contents),
            }
            self._sent = self._received = 0
            self._requests.clear()
            self._contents.clear()
        return found

    def _count(self, connection: socket.socket) -> None:
        info = connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _INFO_BYTES)
        now: tuple[int, int] = struct.unpack_from("QQ", info, _BYTES_ACKED)
        before = self._open[connection]
        self._open[connection] = now
        self._sent += now[0] - before[0]
        self._received += now[1] - before[1]


def answer_lines(figures: dict[str, Figures]) -> None:
    """Answer each line of the input by the figures since the line before; end the process with the input."""
    for _ in sys.stdin:
        print(json.dumps({party: of_party.taken() for party, of_party in figures.items()}), flush=True)
    os._exit(0)


def main() -> None:
    from moto.server import DomainDispatcherApplication, create_backend_app  # type: ignore[attr-defined]
    from werkzeug.serving import WSGIRequestHandler, make_server

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--latency", type=float, default=0.0, help="milliseconds that each request waits")
    latency = parser.parse_args().latency / 1000
    app = DomainDispatcherApplication(create_backend_app)
    figures = {party: Figures() for party in ADDRESSES}
    urls = {}
    for party, address in ADDRESSES.items():
        of_party = figures[party]

        class Handler(WSGIRequestHandler):
            protocol_version = "HTTP/1.1"
            counted = of_party

            def setup(self) -> None:
                super().setup()
                self.counted.opened(self.connection)

            def finish(self) -> None:
                self.counted.closed(self.connection)
                super().finish()

            def log_request(self, *_: Any, **__: Any) -> None:
                pass

        server = make_server(address, 0, _named(app, of_party, latency), threaded=True, request_handler=Handler)
        urls[party] = f"http://{address}:{server.server_port}"
        threading.Thread(target=server.serve_forever, daemon=True).start()
    print(json.dumps(urls), flush=True)
    answer_lines(figures)


def _named(app: App, figures: Figures, latency: float) -> App:
    def counting(environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
        name = name_of(environ["REQUEST_METHOD"], environ["PATH_INFO"], environ.get("QUERY_STRING", ""))
        figures.asked(name)
        if latency:
            time.sleep(latency)
        for piece in app(environ, start_response):
            figures.answered(name, len(piece))
            yield piece

    return counting


def name_of(method: str, path: str, query: str) -> str:
    """The operation and the kind of object."""
    if method == "GET" and "list-type=2" in query:
        return "LIST"
    if path.endswith(".parquet"):
        return f"{method} data"
    return f"{method} {'manifest' if path.endswith('/manifest.json') else 'other'}"


if __name__ == "__main__":
    main()
