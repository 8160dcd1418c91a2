"""The clock that everything is measured with: the wall's, or the processor's of this process.

Where others keep the machine busy, a measurement longer than a turn of the scheduler is interrupted, and a shorter one
is not, so that ratios of the wall's time say little. Nothing here waits for the disk before a checkpoint, so on SQLite both
clocks tell the same on an idle machine. Where a server does the work, only the wall knows.
"""

from __future__ import annotations

import time
from collections.abc import Callable

CLOCKS: dict[str, Callable[[], float]] = {"wall": time.perf_counter, "cpu": time.process_time}

_name = "wall"


def choose(name: str) -> None:
    global _name
    _name = name


def chosen() -> str:
    return _name


def seconds() -> float:
    """Now, from any beginning."""
    return CLOCKS[_name]()
