"""What one process remembers beside one log, so that it need not look again.

It belongs to an engine and goes with it. Losing it costs another look, and never a fact.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from threading import RLock
from typing import Any, TypeVar, cast

T = TypeVar("T")


class ProcessMemory:
    """Values by the module, or the name, that keeps them. Thread-safe."""

    def __init__(self) -> None:
        self._kept: dict[Hashable, Any] = {}
        self._lock = RLock()

    def of(self, key: Hashable, make: Callable[[], T]) -> T:
        """The value under a key; made when a process asks for the first time."""
        with self._lock:
            if key not in self._kept:
                self._kept[key] = make()
            return cast(T, self._kept[key])

    def put(self, key: Hashable, value: object) -> None:
        self._kept[key] = value

    def forget(self) -> None:
        """Drop everything, as if the process had just begun."""
        self._kept.clear()
