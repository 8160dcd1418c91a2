"""Fresh ids: UUIDv7, so that they sort by time and the database's indexes grow at their end."""

from __future__ import annotations

import os
import random
import time

#: What follows each digit's two lowest bits in a UUID's variant.
_VARIANT = {digit: "89ab"[int(digit, 16) % 4] for digit in "0123456789abcdef"}
#: Seeded by the system, once; asking it for each id takes as long as the rest. Anew in a forked process, which would
#: else make its parent's ids, and not the one that `random.seed` is for.
_chance = random.Random()
os.register_at_fork(after_in_child=_chance.seed)


def new_id() -> str:
    """A 36-character UUIDv7 string (RFC 9562): 48 bits of milliseconds, then chance."""
    # Written by hand: the uuid module takes five times as long, and every command makes one or two.
    milliseconds = f"{time.time_ns() // 1_000_000:012x}"
    chance = f"{_chance.getrandbits(76):019x}"
    return f"{milliseconds[:8]}-{milliseconds[8:]}-7{chance[:3]}-{_VARIANT[chance[3]]}{chance[4:7]}-{chance[7:]}"
