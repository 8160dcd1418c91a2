"""What one pass of the orchestrator works with, and how much it may start (SPEC 11.1)."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class TickLimits:
    """How much one tick may start."""

    #: Launches buffered by one tick.
    launches: int = 20
    #: Launches out at once, this location's, whoever started them.
    open_launches: int = 20
    #: Due refs looked at by one level of planning.
    due_refs: int = 10_000
    #: Executors of one operation, queued or running at once.
    executors: int = 2


DEFAULT_LIMITS = TickLimits()
