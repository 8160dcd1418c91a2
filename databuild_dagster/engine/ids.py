"""Fresh ids: UUIDv7, so that they sort by time and the database's indexes grow at their end."""

from __future__ import annotations

import os
import time
import uuid


def new_id() -> str:
    """A 36-character UUIDv7 string (RFC 9562): 48 bits of milliseconds, then chance."""
    milliseconds = time.time_ns() // 1_000_000
    value = (milliseconds << 80) | int.from_bytes(os.urandom(10))
    value = (value & ~(0xF << 76)) | (0x7 << 76)
    value = (value & ~(0x3 << 62)) | (0x2 << 62)
    return str(uuid.UUID(int=value))
