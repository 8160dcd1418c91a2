"""New ids: UUIDv7, which sort by time, so that the database's indexes grow at their end."""

from __future__ import annotations

import os
import random
import time

#: Seeded by the system once, because asking it for each id doubles the time; and again after a fork, because the child
#: would make its parent's ids. `random.seed` does not affect it.
_chance = random.Random()
os.register_at_fork(after_in_child=_chance.seed)


def new_id() -> str:
    """A 36-character UUIDv7 string (RFC 9562): 48 bits of milliseconds, then chance."""
    # Written by hand: the uuid module takes five times as long, and every command makes one or two.
    at, chance = time.time_ns() // 1_000_000, _chance.getrandbits(74)
    variant = 0x8000 | chance >> 60
    return f"{at >> 16:08x}-{at & 0xFFFF:04x}-7{chance & 0xFFF:03x}-{variant:04x}-{chance >> 12 & 0xFFFFFFFFFFFF:012x}"
