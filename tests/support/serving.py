"""Serves HTTP in a thread for as long as a block runs."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from socketserver import BaseServer


@contextmanager
def served(server: BaseServer) -> Iterator[None]:
    """The server answers inside the block; afterwards its port is free and its thread has ended."""
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
