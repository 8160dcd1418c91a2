"""New ids: UUIDv7, which sort by time, so that the database's indexes grow at their end."""

from __future__ import annotations

import os
import random
import time

#: The variant digit of a UUID for each random digit.
_VARIANT = {digit: "89ab"[int(digit, 16) % 4] for digit in "0123456789abcdef"}
#: Seeded by the system once, because asking it for each id doubles the time; and again after a fork, because the child
#: would make its parent's ids. `random.seed` does not affect it.
_chance = random.Random()
os.register_at_fork(after_in_child=_chance.seed)


def new_id() -> str:
    """A 36-character UUIDv7 string (RFC 9562): 48 bits of milliseconds, then chance."""
    # Written by hand: the uuid module takes five times as long, and every command makes one or two.
    milliseconds = f"{time.time_ns() // 1_000_000:012x}"
    chance = f"{_chance.getrandbits(76):019x}"
    return f"{milliseconds[:8]}-{milliseconds[8:]}-7{chance[:3]}-{_VARIANT[chance[3]]}{chance[4:7]}-{chance[7:]}"
