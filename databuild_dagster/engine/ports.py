"""The protocols that the engine needs from the floors above it."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, field
from enum import StrEnum
from types import MappingProxyType
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

from databuild_dagster.model.datasets import DatasetKind, DatasetSpec
from databuild_dagster.model.events import RunSuccess
from databuild_dagster.model.refs import Ref
from databuild_dagster.model.surroundings import Fate
from databuild_dagster.store.queries.job_runs import JobRunView

if TYPE_CHECKING:
    from databuild_dagster.engine.engine import Engine


@dataclass(frozen=True)
class LaunchOrder:
    """A Dagster run to start. The run reads its refs from the store, by its launch id."""

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
    """Dagster's run status, as far as the engine needs it."""

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
    #: The process that made the run to execute it itself; None where Dagster chooses the process.
    holder: str | None = None
    #: The process that Dagster started for the run, once it has reported; it beats only in databuild's step.
    worker: str | None = None
    #: Seconds in which a process must report; None without a bound, in a queue for example.
    begin_within: float | None = None
    #: Of a failed run, the error that Dagster recorded for the run itself, in a single line; None without a recorded error.
    error: str | None = None
    #: How it ended, if it has failed.
    fate: Fate = Fate.KILLED
    #: Whether a foreign process, such as Dagster's run monitoring, marked it as failed, while `holder` executes it.
    is_disowned: bool = False


class Launcher(Protocol):
    """Starts Dagster runs and reads their state."""

    def launch(self, order: LaunchOrder) -> None:
        """Start a Dagster run, or queue it; once for each launch id."""

    def dagster_runs(self, launches: dict[str, str | None]) -> dict[str, DagsterRunState]:
        """The Dagster runs of launches by launch id; launches without a Dagster run are left out.

        The values are Dagster run ids, where they are known. Any other Dagster run may be given under its own id.
        """

    def fail_dagster_run(self, dagster_run_id: str, message: str) -> None:
        """Mark a run whose process is gone as failed, unless it has ended."""


class Remains(Protocol):
    """Finds the output of lost job runs."""

    def finished(self, job_runs: Sequence[JobRunView]) -> list[RunSuccess]:
        """The success of each job run that had finished and could not report it (rule 6.9)."""


class Observation(NamedTuple):
    """Dagster's state of a foreign partition (rule 6.11)."""

    live: bool
    #: The origin of its data, None when it is not live.
    origin: str | None = None
    #: Why it is not live, if that is known.
    reason: str | None = None


class Foreign(Protocol):
    """Reads the state of plain and external Dagster assets."""

    def observe(self, refs: tuple[Ref, ...]) -> dict[Ref, Observation]:
        """An observation for every ref."""


class Provided(NamedTuple):
    """The answer of a provider."""

    #: The refs that became live by it.
    live: Sequence[Ref]
    #: Why refs, or inputs of their builds, have to be built.
    why_built: Mapping[Ref, str]
    #: For a plan: refs, or inputs of their builds, that would be live without a build, and why.
    reused: Mapping[Ref, str] = MappingProxyType({})


@dataclass
class Sample:
    """The part of refs, 0 to 1, of which a build makes a second instance where an earlier one could come back (rule 4.9)."""

    part: float
    #: A second build of the request is recorded.
    is_met: bool = False


#: The sample of the build that this thread does.
sample_of_build: Final[ContextVar[Sample | None]] = ContextVar("sample_of_build", default=None)


class Provider(Protocol):
    """Gives refs an instance without a build: adopted, borrowed or returned."""

    def __call__(
        self,
        engine: Engine,
        refs: Sequence[Ref],
        /,
        *,
        is_plan: bool = False,
        specs: Collection[DatasetSpec] | None = None,
    ) -> Provided:
        """Record an instance for each of `refs`, or of the inputs of their builds, that has an instance elsewhere.

        Called for refs that would be built next, by each level of planning and by each claim, so it asks for many refs at once.
        Each tick, and each build in an environment, calls it without refs first, to record what became of instances that it gave.
        With `is_plan` nothing changes that readers see: `reused` names it. `specs` have at least the datasets of `refs`, and all datasets
        for a plan, if the caller has them: a provider for few datasets then asks nothing for others.
        """
