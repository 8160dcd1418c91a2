"""An operation as its keys show it: the ends of its jobs, and what a person sees of it (rules 9.5, 9.6)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from itertools import islice
from typing import Any, NamedTuple, TypeVar

import msgspec

from databuild_dagster.model.errors import InvalidRequest, Refused
from databuild_dagster.model.operations import records
from databuild_dagster.model.operations.invokes import Unended
from databuild_dagster.model.operations.keys import OperationId
from databuild_dagster.model.operations.records import ArgRecord, Ended, FollowUp, Lease, Mark, Trouble, Unclean
from databuild_dagster.model.operations.states import OPERATION, JobState, OperationCause, OperationState, end_of
from databuild_dagster.model.wording import one_line

T = TypeVar("T")

#: Jobs of an ended operation that are noted for a clean-up: as many as can be running.
MAX_UNCLEAN = 10_000
#: Free jobs that the end of an operation compares: as many as executors, which take the first ones, can take meanwhile.
MAX_FREE = 1_000
#: Operations that a completion may start.
MAX_FOLLOW_UPS = 1_000


class Completion(NamedTuple):
    """The ends of an operation's jobs."""

    success: bool
    #: Partition to the end of its job; the partition of an unpartitioned dataset is "".
    marks: dict[str, Mark]
    #: The operation; its completion code can name its writes by it.
    id: OperationId
    #: The resources of the manager: the Dagster instance, a way to Spark.
    resources: Any = None
    #: Why the operation is complete; None while it is not.
    cause: OperationCause | None = None
    #: Type, dataset and argument of each follow-up that completion code asked for.
    follow_ups: list[tuple[str, str, Any]] | None = None

    def start(self, type_id: str, dataset: str, arg: Any = None) -> None:
        """Start an operation when this operation has ended; only for completion code (rule 9.6).

        Nothing is started now. A start that is refused is part of the outcome. Raises `InvalidRequest` for too many.
        """
        assert self.follow_ups is not None, "completion code calls it"
        if len(self.follow_ups) == MAX_FOLLOW_UPS:
            why = f"{MAX_FOLLOW_UPS} may follow one operation"
            raise InvalidRequest(what="the number of follow-ups", value=MAX_FOLLOW_UPS + 1, why=why)
        self.follow_ups.append((type_id, dataset, arg))

    @property
    def failed(self) -> dict[str, Any]:
        """Partition to the detail of its failed job."""
        return {key: mark.detail for key, mark in self.marks.items() if mark.state is JobState.FAILED}


class OperationView(NamedTuple):
    """An operation, running or ended."""

    id: OperationId
    state: OperationState
    total: int
    done: int
    #: Partition to the detail of its failed job.
    failed: dict[str, Any]
    started_at: float | None
    ended_at: float | None = None
    #: Partition to the lease of its running job.
    executors: dict[str, Lease] = {}  # noqa: RUF012
    report: Any = None
    #: Why no process with this code can continue it; canceling always works.
    problem: str | None = None
    reason: str = ""
    #: Partition to why its job is retried.
    troubles: dict[str, Trouble] = {}  # noqa: RUF012
    #: Why its completion is retried; `problem` has it, too.
    trouble: Trouble | None = None
    #: The operations that its completion code asked to start.
    follow_ups: tuple[FollowUp, ...] = ()


class Seen(NamedTuple):
    """An operation's keys at a single moment. Values of newer code are ignored, so that canceling works."""

    id: OperationId
    values: Mapping[str, bytes | None]
    partitions: dict[str, str | None]

    @classmethod
    def of(cls, id: OperationId, values: Mapping[str, bytes | None]) -> Seen:
        return cls(id, values, _readable(records.partitions_of, values.get(id.partitions)) or {})

    @property
    def is_running(self) -> bool:
        return self.values.get(self.id.state) == records.RUNNING

    @property
    def arg(self) -> ArgRecord:
        value = self.values.get(self.id.arg)
        try:
            return records.arg_of(self.id, value or b"")
        except (Refused, msgspec.MsgspecError):
            return ArgRecord(records.FORMAT, 0, _readable(msgspec.json.decode, value), 0.0)

    @property
    def started_at(self) -> float | None:
        return self.arg.started_at or None

    def completion(self) -> Completion:
        found = {key: _readable(records.mark_of, self.values.get(self.id.job(key).state)) for key in self.partitions}
        marks = {key: mark for key, mark in found.items() if mark is not None}
        n_failed = sum(mark.state is JobState.FAILED for mark in marks.values())
        fail_fast = records.is_fail_fast(self.values.get(self.id.arg))
        cause = end_of(len(self.partitions), len(marks) - n_failed, n_failed, fail_fast=fail_fast)
        return Completion(cause is OperationCause.ALL_SUCCEEDED, marks, self.id, cause=cause)

    @property
    def trouble(self) -> Trouble | None:
        """The trouble of its completion."""
        return _readable(records.trouble_of, self.values.get(self.id.trouble))

    def troubles(self) -> dict[str, Trouble]:
        """The troubles of jobs that have not ended."""
        read = self.values.get
        found = {key: _readable(records.trouble_of, read(self.id.job(key).trouble)) for key in self.partitions}
        return {key: trouble for key, trouble in found.items() if trouble is not None}

    def unended(self) -> dict[str, Unended]:
        """The first `MAX_UNCLEAN` jobs with an executor, and the first `MAX_FREE` without an executor."""
        read, jobs = self.values.get, {key: self.id.job(key) for key in self.partitions}
        executors = {key: read(job.executor) for key, job in jobs.items() if read(job.state) is None}
        taken = {key: value for key, value in executors.items() if value is not None}
        free = (key for key in executors if key not in taken)
        found = {key: Unended(None, None) for key in islice(free, MAX_FREE)}
        for key, value in islice(taken.items(), MAX_UNCLEAN):
            lease = _readable(records.lease_of, value)
            found[key] = Unended(value, None if lease is None else Unclean(lease, self.partitions[key]))
        return found

    def ended(
        self,
        cause: OperationCause,
        at: float,
        *,
        report: Any = None,
        reason: str = "",
        follow_ups: Iterable[FollowUp] = (),
    ) -> Ended:
        completion = self.completion()
        return Ended(
            records.FORMAT,
            OPERATION.next(OperationState.RUNNING, cause, entity=str(self.id)),
            self.arg,
            n_partitions=len(self.partitions),
            n_succeeded=len(completion.marks) - len(completion.failed),
            failed=records.kept_details(completion.failed),
            ended_at=at,
            report=report,
            reason=reason,
            follow_ups=tuple(follow_ups),
        )


def _readable(decode: Callable[[bytes], T], value: bytes | None) -> T | None:
    try:
        return None if value is None else decode(value)
    except msgspec.MsgspecError:
        return None


def ended_view(id: OperationId, value: bytes) -> OperationView:
    """An operation by its entry in the history; an entry that cannot be read says so."""
    try:
        ended = records.ended_of(id, value)
    except (Refused, msgspec.MsgspecError) as error:
        why = error.message if isinstance(error, Refused) else f"its entry cannot be read: {one_line(error)}"
        unreadable = OPERATION.next(OperationState.RUNNING, OperationCause.ENDED_BY_NEWER_CODE)
        return OperationView(id, unreadable, 0, 0, {}, None, problem=why)
    return OperationView(
        id,
        ended.outcome,
        total=ended.n_partitions,
        done=ended.n_succeeded,
        failed=ended.failed,
        started_at=ended.arg.started_at or None,
        ended_at=ended.ended_at,
        report=ended.report,
        reason=ended.reason,
        follow_ups=ended.follow_ups,
    )
