"""What the engine is held to: a hard limit and an aim for each figure. Ratios are of figures of the same run."""

from __future__ import annotations

from typing import NamedTuple


class Limit(NamedTuple):
    """One row: `hard` must hold, `aim` is what we are after."""

    hard: float
    aim: float | None
    unit: str
    #: Larger is better.
    at_least: bool = False

    def verdict(self, value: float) -> str:
        if not self._within(value, self.hard):
            return "NO"
        return "yes" if self.aim is None or self._within(value, self.aim) else "hard only"

    def _within(self, value: float, limit: float) -> bool:
        return value >= limit if self.at_least else value <= limit

    def shown(self, value: float | None) -> str:
        """A value, or the limit itself, with its unit."""
        if value is None:
            return ""
        digits = 0 if abs(value) >= 100 else 1 if abs(value) >= 10 else 2 if abs(value) >= 1 else 3
        return f"{value:,.{digits}f}{self.unit}"

    @property
    def sign(self) -> str:
        return "≥" if self.at_least else "≤"


GROWTH = Limit(1.3, 1.15, "×")
SINGLE = {"sqlite": Limit(15, 8, "×"), "postgres": Limit(8, 4, "×")}
ROUND_TRIPS = Limit(6, 4, "")
BATCH_WANT = Limit(0.2, 0.4, "×", at_least=True)
BATCH_SUCCESS = Limit(0.05, 0.12, "×", at_least=True)
UNBLOCKING = Limit(5, 4, "×")
IDLE_TICK = Limit(1.0, 0.020, " ms")
PLANNING = Limit(50, 15, " ms")
CASCADE = Limit(4, 1.5, " s")
REBUILD = Limit(15_000, 30_000, " events/s", at_least=True)
REBUILD_MEMORY = Limit(300, None, " MB")
WRITERS_TOTAL = Limit(0.7, 0.8, "×", at_least=True)
WRITERS_FAIRNESS = Limit(0.5, 0.7, "×", at_least=True)
WRITERS_WAIT = Limit(0.5, 0.25, " s")
MEMORY = Limit(100, None, " MB")
