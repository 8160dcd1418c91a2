"""The cache of one engine in one process. It can be lost at any time: every value can be read again."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from threading import RLock
from typing import Any, TypeVar, cast

T = TypeVar("T")


class ProcessMemory:
    """Values by the module or the name that stores them. Thread-safe."""

    def __init__(self) -> None:
        self._kept: dict[Hashable, Any] = {}
        self._lock = RLock()

    def of(self, key: Hashable, make: Callable[[], T]) -> T:
        """The value under a key, made at the first call."""
        with self._lock:
            if key not in self._kept:
                self._kept[key] = make()
            return cast(T, self._kept[key])

    def put(self, key: Hashable, value: object) -> None:
        self._kept[key] = value

    def forget(self) -> None:
        """Drop everything."""
        self._kept.clear()
