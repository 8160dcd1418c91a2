"""A port of this machine that a server may have."""

from __future__ import annotations

import random
import socket
from contextlib import suppress

LOOPBACK = "127.0.0.1"

#: Below those that the system gives to whoever asks for any: one of them could be another's before its server listens.
FIRST, LAST = 20_000, 32_000


def free_port() -> int:
    while True:
        port = random.randrange(FIRST, LAST)
        with socket.socket() as probe, suppress(OSError):
            probe.bind((LOOPBACK, port))
            return port
