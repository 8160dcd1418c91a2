"""Time as a test turns it, and ids in the order they were asked for."""

from __future__ import annotations

import uuid

#: 2023-11-14T22:13:20Z: any time will do, as long as it is the same every time.
NOON = 1_700_000_000.0


class Clock:
    """A clock that only moves when a test turns it."""

    def __init__(self, now: float = NOON) -> None:
        self.now = now
        self._passed = 0.0

    def __call__(self) -> float:
        return self.now

    def steady(self) -> float:
        """How much time has passed, however the clock was set."""
        return self._passed

    def turn(self, seconds: float) -> None:
        """Forwards, as time passes; or back for a clock that was set wrong."""
        self.now += seconds
        self._passed += max(seconds, 0.0)

    def set(self, seconds: float) -> None:
        """Forwards or back, while no time passes."""
        self.now += seconds


class Ids:
    """UUIDv7 strings that count upwards."""

    def __init__(self, first: int = 1) -> None:
        self.following = first

    def __call__(self) -> str:
        value = (self.following << 80) | (0x7 << 76) | (0x2 << 62) | self.following
        self.following += 1
        return str(uuid.UUID(int=value))
