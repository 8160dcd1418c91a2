"""New ids: UUIDv7, which sort by time, so that the database's indexes grow at their end."""

from __future__ import annotations

import os
import random
import time

#: Seeded by the system once, because asking it for each id doubles the time; and again after a fork, because the child
#: would make its parent's ids. `random.seed` does not affect it.
_chance = random.Random()
os.register_at_fork(after_in_child=_chance.seed)


#: The bits of a UUIDv7 below its time: its version and its variant, and those left to chance.
_MARKS, _FREE = 0x7000_8000_0000_0000_0000, 0x0FFF_3FFF_FFFF_FFFF_FFFF


def new_id() -> str:
    """A 36-character UUIDv7 string (RFC 9562): 48 bits of milliseconds, then chance."""
    # Written by hand: the uuid module takes five times as long, and every command makes one to three.
    bits = time.time_ns() // 1_000_000 << 80 | _MARKS | _chance.getrandbits(80) & _FREE
    digits = bits.to_bytes(16, "big").hex()
    return f"{digits[:8]}-{digits[8:12]}-{digits[12:16]}-{digits[16:20]}-{digits[20:]}"
