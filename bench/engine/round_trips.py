"""How often a client waits for a server: a proxy between them that counts the turns of the talk.

All that the client sends before it gets an answer is one turn, however many packets or statements it is.
"""

from __future__ import annotations

import selectors
import socket
import threading

#: Read at once.
CHUNK_BYTES = 1 << 16


class Proxy:
    """Listens on a port of this machine and passes everything on; `turns` counts over all connections."""

    def __init__(self, host: str, port: int) -> None:
        self.turns = 0
        self._server = (host, port)
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            server = socket.create_connection(self._server)
            for item in (client, server):
                item.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            threading.Thread(target=self._pass_on, args=(client, server), daemon=True).start()

    def _pass_on(self, client: socket.socket, server: socket.socket) -> None:
        selector = selectors.DefaultSelector()
        selector.register(client, selectors.EVENT_READ, server)
        selector.register(server, selectors.EVENT_READ, client)
        heard = True
        with client, server:
            while True:
                for key, _ in selector.select():
                    source = key.fileobj
                    assert isinstance(source, socket.socket)
                    data = source.recv(CHUNK_BYTES)
                    if not data:
                        return
                    if source is client:
                        self.turns += heard
                    heard = source is server
                    key.data.sendall(data)

    def close(self) -> None:
        self._listener.close()
