"""What the engine needs of the world outside, to be filled in by the floors above it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import NamedTuple, Protocol

from databuild_dagster.model.datasets import Catalog, DatasetKind
from databuild_dagster.model.events import RunSuccess
from databuild_dagster.model.refs import Ref
from databuild_dagster.store.queries.job_runs import JobRunView

__all__ = [
    "Catalog",
    "DagsterRunState",
    "DagsterRunStatus",
    "Foreign",
    "LaunchOrder",
    "Launcher",
    "Observation",
    "Remains",
]


@dataclass(frozen=True)
class LaunchOrder:
    """One Dagster run to be started. Which refs it builds it learns from the store, by its launch id."""

    launch_id: str
    job: str
    location: str
    kind: DatasetKind
    assets: tuple[str, ...]
    #: In the order of the partitions definition; a single None for an unpartitioned asset.
    partition_keys: tuple[str | None, ...]
    priority: int = 0
    tags: dict[str, str] = field(default_factory=dict)


class DagsterRunStatus(StrEnum):
    """As much of Dagster's run status as matters here."""

    QUEUED = "queued"
    RUNNING = "running"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    CANCELED = "canceled"

    @property
    def ended(self) -> bool:
        return self not in (DagsterRunStatus.QUEUED, DagsterRunStatus.RUNNING)


class DagsterRunState(NamedTuple):
    """The Dagster run of a launch."""

    dagster_run_id: str
    status: DagsterRunStatus
    #: The process that made the run in order to execute it itself; None where Dagster decides who does.
    holder: str | None = None
    #: The process that Dagster has started for it, once that has said so; it beats only when it has begun our step.
    worker: str | None = None
    #: Until when a process has to have said so; None while it may take any time, in a queue for example.
    begin_by: float | None = None


class Launcher(Protocol):
    """Starts Dagster runs and knows what became of them."""

    def launch(self, order: LaunchOrder) -> None:
        """Start it, or see to it that it will be; asking again for the same launch id starts nothing twice."""
        ...

    def dagster_runs(self, launches: dict[str, str | None]) -> dict[str, DagsterRunState]:
        """The Dagster runs of launches, given by launch id with the Dagster run id where it is known; those without a run are left out.

        Any other Dagster run may be asked for too, under its own id.
        """
        ...

    def fail_dagster_run(self, dagster_run_id: str, message: str) -> None:
        """Tell Dagster that a run whose process is gone has failed; nothing if it has ended."""
        ...


class Remains(Protocol):
    """Looks at what job runs have left where their outputs belong."""

    def finished(self, job_runs: Sequence[JobRunView]) -> list[RunSuccess]:
        """The success of each of them that had finished and could not say so (SPEC 6.9)."""
        ...


class Observation(NamedTuple):
    """What Dagster knows of a partition that is not ours (SPEC 6.11)."""

    live: bool
    #: Where its data is known from, None when it is not live.
    origin: str | None = None
    #: Why it is not live, where there is something to say.
    reason: str | None = None


class Foreign(Protocol):
    """Looks at what plain Dagster assets and external ones have."""

    def observe(self, refs: tuple[Ref, ...]) -> dict[Ref, Observation]:
        """One observation for every ref."""
        ...
