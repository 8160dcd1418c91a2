"""A TCP port in front of a server, through which a test stops its bytes, or puts another server in its place."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable
from contextlib import ExitStack, closing, suppress


class Line:
    """While `carries` is not set, it carries no bytes and stays open: as a frozen server, or a network that drops packets.

    `connect` opens a connection to the server, for each that a client opens.
    """

    def __init__(self, connect: Callable[[], socket.socket]) -> None:
        self.connect = connect
        self.carries = threading.Event()
        self.carries.set()
        self._open = ExitStack()
        self._port = self._open.enter_context(closing(socket.create_server(("127.0.0.1", 0))))
        self.port = self._port.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        self.carries.set()
        self._open.close()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                client, _ = self._port.accept()
                self._open.enter_context(closing(client))
                try:
                    server = self._open.enter_context(closing(self.connect()))
                except OSError:
                    client.close()
                    continue
                for source, target in ((client, server), (server, client)):
                    threading.Thread(target=self._carry, args=(source, target), daemon=True).start()

    def _carry(self, source: socket.socket, target: socket.socket) -> None:
        with suppress(OSError):
            while chunk := source.recv(65536):
                self.carries.wait()
                target.sendall(chunk)
        with suppress(OSError):
            target.shutdown(socket.SHUT_WR)
