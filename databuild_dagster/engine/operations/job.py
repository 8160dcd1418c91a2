"""One job as its executor and its operation's code see it (SPEC 9.4, 9.5)."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from math import inf
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec.structs import replace

from databuild_dagster.engine.operations.manager import DistributedOperation
from databuild_dagster.model.decide.context import BACKOFF_SECONDS, MAX_BACKOFF_SECONDS
from databuild_dagster.model.errors import InvalidRequest, LeaseLost
from databuild_dagster.model.operations import invokes, records
from databuild_dagster.model.operations.keys import OperationId
from databuild_dagster.model.operations.records import Lease, Mark
from databuild_dagster.model.operations.states import JobState
from databuild_dagster.model.refs import PartitionRef
from databuild_dagster.model.wording import one_line

if TYPE_CHECKING:
    from databuild_dagster.engine.operations.executor import Executor

#: Of one mark: many of them are recorded as one event.
MAX_DETAIL_BYTES = 1024 * 1024
#: Letters of an error that are kept with a mark.
MAX_ERROR = 2_000


#: Doublings at most: a job may be tried without end.
_MAX_DOUBLINGS = 20


def backoff_seconds(attempts: int) -> float:
    """How long what has failed so often waits."""
    return min(BACKOFF_SECONDS * 2.0 ** min(attempts - 1, _MAX_DOUBLINGS), MAX_BACKOFF_SECONDS)


def told(error: Exception) -> str:
    """What raised, and its message."""
    return f"{type(error).__name__}: {one_line(str(error))}"


class RetryJob(Exception):
    """Raised by a job when trying again may help: a service was down, a connection broke."""


class CannotExecute(Exception):
    """It is this process that cannot run jobs, whichever: raised by what is around them, and passed on to its host."""


class JobContext:
    """A job as its code sees it: what it is, and how it records progress and its end."""

    def __init__(self, executor: Executor, id: OperationId, partition: str, lease: Lease, instance: str | None) -> None:
        self._executor = executor
        self.operation = id
        #: The partition's key, "" for a dataset without partitions.
        self.partition = partition
        self.lease = lease
        #: What was live when the operation began; what the job finds out is about this one, also when another came since.
        self.instance_uuid = instance
        #: What the job has saved before, under any executor; None to begin from scratch.
        self.progress: bytes | None = None
        #: Counts from 1, for this executor.
        self.attempt = 1
        #: True once the lease or the operation is gone. A job that runs for long looks at it.
        self.is_stopped = False
        #: Called when it becomes so, perhaps by another thread: to interrupt what cannot look.
        self.on_stop: list[Callable[[], None]] = []
        #: For the host of the executor: Spark, logging.
        self.extras = executor.extras
        self.said: Mark | None = None

    @property
    def ref(self) -> PartitionRef:
        return self.operation.ref(self.partition)

    @property
    def token(self) -> str:
        """Of this lease alone: it names what a job writes, apart from its writes under another lease."""
        return self.lease.token

    @property
    def is_resumed(self) -> bool:
        """Whether another executor has begun it."""
        return bool(self.lease.adopted_from)

    def check(self) -> None:
        """Raises `LeaseLost` when another executor has the job by now, or the operation has ended: ask before each write."""
        self._executor.beat_if_due()
        keys = self.operation.job(self.partition)
        state, lease, ended = self._executor.meta.get_all([self.operation.state, keys.executor, keys.state]).entries
        if state.value != records.RUNNING or lease.value != records.to_bytes(self.lease) or ended.value is not None:
            self._lost()

    def save_progress(self, progress: bytes) -> None:
        """The next run of the job resumes from here. Raises `LeaseLost`; `InvalidRequest` for a volatile operation."""
        if not self._executor.manager.type_named(self.operation.type).resumable:
            raise InvalidRequest(what="progress", value=self.operation.type, why="its jobs always begin anew")
        self._executor.beat_if_due()
        statement = invokes.save(self.operation, self.partition, self.lease, progress)
        if not self._executor.meta.invoke_all([statement]).value:
            self._lost()
        self.progress = progress

    @property
    def outcome(self) -> Mark:
        """The mark that it recorded, or success, which returning means."""
        return self.said or Mark(JobState.SUCCESS, self.instance_uuid, None, self.token)

    def mark_job_complete(self, success: bool = True, detail: Any = None) -> None:
        """How the job ended, and what to tell of it (JSON). It is recorded when the job returns; the last word counts.

        Raises `InvalidRequest` for what is no JSON: here, where it is the job's own failure.
        """
        try:
            if len(records.to_bytes(detail)) > MAX_DETAIL_BYTES:
                raise InvalidRequest(
                    what="the detail of a job",
                    value=f"{len(records.to_bytes(detail))} bytes",
                    why=f"{MAX_DETAIL_BYTES} may be",
                )
        except (TypeError, ValueError, msgspec.MsgspecError) as error:
            raise InvalidRequest(what="a job's detail", value=detail, why=one_line(str(error))) from None
        self.said = Mark(JobState.SUCCESS if success else JobState.FAILED, self.instance_uuid, detail, self.token)

    def failed_with(self, error: str) -> Mark:
        """The mark of a job that raised."""
        return Mark(JobState.FAILED, self.instance_uuid, {"error": error[:MAX_ERROR]}, self.token)

    def stop(self) -> None:
        if not self.is_stopped:
            self.is_stopped = True
            for call in self.on_stop:
                call()

    def _lost(self) -> None:
        self.stop()
        raise LeaseLost(id=str(self.operation), partition=self.partition)


class Job:
    """One job that this executor has."""

    def __init__(self, operation: DistributedOperation[Any], arg: Any, context: JobContext) -> None:
        self.operation = operation
        self.arg = arg
        self.context = context
        #: When it may be tried (again), as the engine's `steady` measures.
        self.due_at = -inf
        #: Set once it has failed for good: its clean-up and then its mark are left to do.
        self.failed: Mark | None = None
        #: Whether it was tried before: then something of it may lie about.
        self.is_begun = False
        #: Whether it is this executor's no more: what is left is to clean up, and to forget it.
        self.is_dropped = False

    @property
    def place(self) -> tuple[OperationId, str]:
        return self.context.operation, self.context.partition


def clean_up(
    executor: Executor, operation: DistributedOperation[Any], arg: Any, context: JobContext, tokens: Iterable[str]
) -> None:
    """Take away what was left of a job under each of some tokens."""
    for token in tokens:
        of_token = context
        if token != context.token:
            lease = replace(context.lease, token=token)
            of_token = executor.contexts(executor, context.operation, context.partition, lease, context.instance_uuid)
            of_token.is_stopped = True
        operation.cancel_job_and_cleanup(arg, context.ref, of_token)
