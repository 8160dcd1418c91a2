"""What one pass of the orchestrator works with, and how much it may start (SPEC 11.1)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from databuild_dagster.engine.engine import Engine
from databuild_dagster.engine.judge import Judge
from databuild_dagster.engine.ports import Foreign, Launcher, Remains
from databuild_dagster.model.datasets import DatasetSpec
from databuild_dagster.store.log import Head


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


@dataclass(frozen=True)
class Pass:
    """One tick of one code location's orchestrator: what it sees, and whom it acts through (SPEC 11.1)."""

    engine: Engine
    location: str
    launcher: Launcher
    foreign: Foreign
    judge: Judge
    #: The calling process (`holders.this_process`).
    owner: str
    limits: TickLimits = DEFAULT_LIMITS
    #: None: lost job runs are never found to have finished.
    remains: Remains | None = None
    #: After how many seconds the next tick begins; 0 if this one is the only one.
    interval_seconds: float = 0.0
    #: The registered datasets of all locations by id, and the log's end, for a caller that has just asked; the tick asks
    #: otherwise.
    datasets: Mapping[int, DatasetSpec] | None = None
    head: Head | None = None
