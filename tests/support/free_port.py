"""A port of this machine that a server may have."""

from __future__ import annotations

import random
import socket
from contextlib import suppress

LOOPBACK = "127.0.0.1"

#: Below those that the system gives to a process that asks for any: one of them could be another's before its server listens.
FIRST, LAST = 20_000, 32_000

#: Not the generator of `random`, which pytest-randomly resets for each test: a repeated run would try the same ports.
_RANDOM = random.SystemRandom()
#: One for each port given out. The kernel frees the name of an abstract socket when this process ends.
_reserved: list[socket.socket] = []


def free_port() -> int:
    """A port on which nothing listens, and that no other worker gets before the server of this one listens."""
    while True:
        port = _RANDOM.randrange(FIRST, LAST)
        reservation = socket.socket(socket.AF_UNIX)
        try:
            reservation.bind(f"\0databuild-tests-port-{port}")
        except OSError:
            reservation.close()
            continue
        _reserved.append(reservation)
        with socket.socket() as probe, suppress(OSError):
            probe.bind((LOOPBACK, port))
            return port
