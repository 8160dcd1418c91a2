"""The arguments of a pass of the orchestrator, and its limits (rule 11.1)."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from databuild_dagster.engine.engine import Engine
from databuild_dagster.engine.judge import Judge
from databuild_dagster.engine.ports import Foreign, Launcher, Provider, Remains
from databuild_dagster.model.datasets import DatasetSpec
from databuild_dagster.model.refs import Ref
from databuild_dagster.store.log import Head


@dataclass(frozen=True)
class TickLimits:
    """The limits of a tick."""

    #: Launches buffered by a tick.
    launches: int = 20
    #: Open launches of the location, from any orchestrator.
    open_launches: int = 20
    #: Due refs in a level of planning.
    due_refs: int = 10_000
    #: Executors of an operation, queued or running at once.
    executors: int = 2


DEFAULT_LIMITS = TickLimits()


@dataclass(frozen=True)
class Pass:
    """A tick of a code location's orchestrator (rule 11.1)."""

    engine: Engine
    location: str
    launcher: Launcher
    foreign: Foreign
    judge: Judge
    #: The calling process (`holders.this_process`).
    owner: str
    limits: TickLimits = DEFAULT_LIMITS
    #: Finds the output of lost job runs; None: they are always built again.
    remains: Remains | None = None
    #: Seconds to the next tick; 0 if this tick is the only tick.
    interval_seconds: float = 0.0
    #: The registered datasets of all locations by id, and the log's end; the tick reads what is None.
    datasets: Mapping[int, DatasetSpec] | None = None
    head: Head | None = None
    #: The tick launches only `serving` and what its refs need (rule 8.9); None: all due refs of the location.
    serving: Collection[Ref] | None = None
    #: Asked for refs that would be built, before their inputs are missed.
    providers: Sequence[Provider] = ()
    #: New instances of sources want lots; not in an environment (rule 16.5).
    fires_arcs: bool = True
