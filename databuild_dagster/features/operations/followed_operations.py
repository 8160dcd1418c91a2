"""Operations that a long-lived process follows: a question costs what has changed since the last question, not their size.

The first question reads the keys of all running operations. Ended operations never change, so their entries are read once.
"""

from collections.abc import Callable, Mapping, Sequence
from itertools import islice
from threading import Lock
from typing import Any, Final

import msgspec
from msgspec.structs import replace

from databuild_dagster.calls.calendar import BUILDING, FAILED, LIVE, MISSING, WAITING, Grid, GridShape
from databuild_dagster.engine.engine import Engine
from databuild_dagster.engine.holders import in_words
from databuild_dagster.features.operations.manager import DistributedOperationManager
from databuild_dagster.features.operations.seen import ended_view
from databuild_dagster.features.operations.shapes import (
    ShownOperation,
    ShownReport,
    error_of,
    ref_of,
    report_shape,
    shown_operation,
    shown_trouble,
)
from databuild_dagster.features.operations.tracker import Tracked, Tracker
from databuild_dagster.model.errors import DatabuildError, NotFound, Refused
from databuild_dagster.model.operations import keys, records
from databuild_dagster.model.operations.keys import OperationId
from databuild_dagster.model.operations.states import JobState, OperationState
from databuild_dagster.model.records import Time, extended, time_of
from databuild_dagster.model.refs import Ref
from databuild_dagster.store.queries.asking import MAX_SEQ

#: Executors of an answer, and failed or retried jobs.
MAX_EXECUTORS: Final = 100
MAX_JOBS: Final = 100
#: Ended operations that are remembered, and operations of the same type that an operation's page names.
MAX_REMEMBERED: Final = 1_000
MAX_EARLIER: Final = 10
#: The names of the cells of a grid, the worst first; their marks have the colours of calendars.
MARK_OF_JOB: Final[Mapping[str, str]] = {
    "failed": FAILED,
    "retrying": WAITING,
    "running": BUILDING,
    "free": MISSING,
    "done": LIVE,
}


class EndedOperation(ShownOperation, frozen=True):
    """An ended operation; `seq` is the event that ended it."""

    seq: int = 0
    reason: str = ""


class OperationsPage(msgspec.Struct, frozen=True):
    """Running operations, and the last that ended, newest first. `earlier` is the seq before which there are more."""

    running: list[ShownOperation]
    ended: list[EndedOperation]
    earlier: int | None


class ShownExecutor(msgspec.Struct, frozen=True):
    """A process that runs jobs; `since` is the time of its oldest job."""

    process: str
    n_jobs: int
    partitions: list[Ref]
    since: Time
    heartbeat_at: Time | None


class JobTrouble(msgspec.Struct, frozen=True):
    """A job that is retried."""

    ref: Ref
    error: str
    attempts: int
    next_at: Time


class FailedJob(msgspec.Struct, frozen=True):
    """A job that failed."""

    ref: Ref
    error: str


class OperationDetail(ShownOperation, frozen=True):
    """An operation with its jobs. Of an ended operation, the store has the failed jobs alone: it has no grid."""

    reason: str = ""
    started_by: str | None = None
    running: int = 0
    retrying: int = 0
    free: int = 0
    executors: Sequence[ShownExecutor] = msgspec.field(default_factory=list)
    failures: Sequence[FailedJob] = msgspec.field(default_factory=list)
    retries: Sequence[JobTrouble] = msgspec.field(default_factory=list)
    report: ShownReport | None = None
    grid: GridShape | None = None
    #: Operations of the same type on the dataset that ended, newest first.
    others: Sequence[EndedOperation] = msgspec.field(default_factory=list)
    #: The event that ended it; null while it runs.
    seq: int | None = None


class FollowedOperations:
    """The operations of a build state, for the threads of a process."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._manager = DistributedOperationManager(engine)
        self._tracker = Tracker(self._manager.meta)
        #: A look changes what other threads would read.
        self._lock = Lock()
        #: By key and revision.
        self._ended: dict[tuple[str, int], EndedOperation] = {}
        #: By root.
        self._grids: dict[str, Grid] = {}

    def operations(self, dataset: str | None, before: int | None, most: int) -> OperationsPage:
        """The running operations, and the last operations that ended before an event, on a dataset or on all."""
        with self._lock:
            self._tracker.look()
            running = [
                _running(tracked) for tracked in self._tracker.operations if dataset in (None, tracked.id.dataset)
            ]
        running.sort(key=lambda found: (found.started_at or 0.0, found.id), reverse=True)
        prefix = keys.HISTORY + keys.SEPARATOR + ("" if dataset is None else keys.escape(dataset) + keys.SEPARATOR)
        ended, is_cut = self._newest_ended(prefix, MAX_SEQ if before is None else before, most)
        return OperationsPage(running[:most], ended, ended[-1].seq if is_cut else None)

    def operation(self, id: OperationId, within: str, offset: int) -> OperationDetail:
        """An operation; `within` and `offset` choose the part of its grid. Raises `NotFound`."""
        with self._lock:
            self._tracker.look()
            tracked = self._tracker.find(id)
            detail = None if tracked is None else self._detail(tracked, within, offset)
        if detail is None:
            detail = self._of_history(id)
        else:
            detail = replace(detail, failures=self._failures(id, detail.failures))
        of_type = id._replace(object=None, instance=0).history.removesuffix("0")
        others, _ = self._newest_ended(of_type, MAX_SEQ, MAX_EARLIER + 1)
        return replace(detail, others=[other for other in others if other.id != str(id)][:MAX_EARLIER])

    def _newest_ended(self, prefix: str, before: int, most: int) -> tuple[list[EndedOperation], bool]:
        """The newest ended operations under a prefix, and whether there are more."""
        named = self._manager.meta.newest(prefix, before, most + 1)
        unknown = [key for key, revision in named if (key, revision) not in self._ended]
        values = {entry.key: entry.value for entry in self._manager.meta.get_all(unknown).entries} if unknown else {}
        found: list[EndedOperation] = []
        for key, revision in named[:most]:
            shape = self._ended.get((key, revision)) or _ended_shape(key, revision, values.get(key))
            if shape is not None:
                self._remember((key, revision), shape)
                found.append(shape)
        return found, len(named) > most and bool(found)

    def _remember(self, key: tuple[str, int], shape: EndedOperation) -> None:
        with self._lock:
            self._ended[key] = shape
            for oldest in list(islice(self._ended, max(len(self._ended) - MAX_REMEMBERED, 0))):
                del self._ended[oldest]

    def _detail(self, tracked: Tracked, within: str, offset: int) -> OperationDetail:
        started_by = _argument(tracked, lambda record: record.started_by)
        n_retried = sum(key in tracked.taken for key in tracked.troubles)
        refs = [ref_of(tracked.id, key) for key in islice(_failed(tracked), MAX_JOBS)]
        retries = list(islice(tracked.troubles.items(), MAX_JOBS))
        running = {other.id.root for other in self._tracker.operations}
        self._grids = {root: grid for root, grid in self._grids.items() if root in running}
        if (grid := self._grids.get(tracked.id.root)) is None:
            grid = self._grids[tracked.id.root] = Grid(tracked.id.dataset, tracked.partitions)
        return extended(
            OperationDetail,
            _running(tracked),
            started_by=started_by or None,
            running=len(tracked.taken) - n_retried,
            retrying=len(tracked.troubles),
            free=len(tracked.free) - (len(tracked.troubles) - n_retried),
            executors=self._executors(tracked),
            failures=[FailedJob(ref, "") for ref in refs],
            retries=[_job_trouble(ref_of(tracked.id, key), trouble) for key, trouble in retries],
            grid=grid.shape(_mark_of(tracked), within=within, offset=offset),
        )

    def _executors(self, tracked: Tracked) -> list[ShownExecutor]:
        jobs: dict[str, list[tuple[str, records.Lease]]] = {}
        for partition, (_, lease) in tracked.taken.items():
            jobs.setdefault(lease.executor, []).append((partition, lease))
        shown = dict(islice(jobs.items(), MAX_EXECUTORS))
        beats = self._engine.heartbeats.last(shown) if shown else {}
        return [
            ShownExecutor(
                in_words(of_one[0][1].holder),
                len(of_one),
                [ref_of(tracked.id, partition) for partition, _ in of_one[:3]],
                Time(min(lease.at for _, lease in of_one)),
                time_of(beats.get(executor)),
            )
            for executor, of_one in shown.items()
        ]

    def _failures(self, id: OperationId, failures: Sequence[FailedJob]) -> list[FailedJob]:
        """With their errors, which are not followed: a detail may be large."""
        if not failures:
            return []
        partitions = [failure.ref.partition("@")[2] for failure in failures]
        marks = self._manager.meta.get_all(id.job(partition).state for partition in partitions).entries
        return [
            FailedJob(failure.ref, "" if mark.value is None else error_of(records.mark_of(mark.value).detail))
            for failure, mark in zip(failures, marks, strict=True)
        ]

    def _of_history(self, id: OperationId) -> OperationDetail:
        entry = self._manager.meta.get(id.history)
        if entry.value is None:
            raise NotFound(
                kind="operation", name=str(id), names=[str(tracked.id) for tracked in self._tracker.operations]
            )
        view = ended_view(id, entry.value)
        failures = list(islice(view.failed.items(), MAX_JOBS))
        return extended(
            OperationDetail,
            shown_operation(view),
            reason=view.reason,
            started_by=_started_by(id, entry.value),
            failures=[FailedJob(ref_of(id, key), error_of(detail)) for key, detail in failures],
            report=report_shape(view.report),
            seq=entry.revision,
        )


def _running(tracked: Tracked) -> ShownOperation:
    n_failed = tracked.n_failed
    n_done, total = len(tracked.done) - n_failed, len(tracked.partitions)
    started_at = time_of(_argument(tracked, lambda record: record.started_at) or None)
    problem = tracked.unreadable or (None if tracked.trouble is None else tracked.trouble.error)
    return ShownOperation(
        *(str(tracked.id), tracked.id.type, tracked.id.dataset, OperationState.RUNNING, n_done, n_failed, total),
        problem,
        started_at,
        completion=shown_trouble(tracked.trouble),
    )


def _job_trouble(ref: Ref, trouble: records.Trouble) -> JobTrouble:
    return JobTrouble(ref, trouble.error, trouble.attempts, Time(trouble.next_at))


def _argument(tracked: Tracked, field: Callable[[records.ArgRecord], Any]) -> Any:
    """A field of the record of the start; None for a record of newer code."""
    try:
        return None if tracked.arg is None else field(records.arg_of(tracked.id, tracked.arg))
    except (DatabuildError, ValueError):
        return None


def _started_by(id: OperationId, value: bytes) -> str | None:
    try:
        return records.ended_of(id, value).arg.started_by or None
    except (Refused, ValueError):
        return None


def _failed(tracked: Tracked) -> list[str]:
    if not tracked.n_failed:
        return []
    return [partition for partition, state in tracked.done.items() if state is JobState.FAILED]


def _mark_of(tracked: Tracked) -> Callable[[str], str]:
    """The mark of a partition's job."""

    def mark(partition: str) -> str:
        state = tracked.done.get(partition)
        if state is not None:
            return MARK_OF_JOB["failed" if state is JobState.FAILED else "done"]
        if partition in tracked.troubles:
            return MARK_OF_JOB["retrying"]
        return MARK_OF_JOB["running" if partition in tracked.taken else "free"]

    return mark


def _ended_shape(key: str, revision: int, value: bytes | None) -> EndedOperation | None:
    """None for a name of newer code."""
    try:
        id = OperationId.parse(key.removeprefix(keys.HISTORY + keys.SEPARATOR))
    except NotFound:
        return None
    view = ended_view(id, value or b"")
    return extended(EndedOperation, shown_operation(view), seq=revision, reason=view.reason)
