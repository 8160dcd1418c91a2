"""A job, for its executor and for the operation's code, and the workers that call that code (rules 9.4, 9.5)."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from concurrent.futures import FIRST_COMPLETED, Future, wait
from math import inf
from typing import Any, Protocol, TypeAlias

import msgspec
from msgspec.structs import replace

from databuild_dagster.features.operations.manager import DistributedOperation, DistributedOperationManager
from databuild_dagster.features.operations.meta_storage import MetaStorage
from databuild_dagster.model.decide.context import BACKOFF_SECONDS, MAX_BACKOFF_SECONDS
from databuild_dagster.model.errors import InvalidRequest, LeaseLost
from databuild_dagster.model.meta_storage import MAX_VALUE_BYTES
from databuild_dagster.model.operations import invokes, records
from databuild_dagster.model.operations.keys import OperationId
from databuild_dagster.model.operations.records import Lease, Mark
from databuild_dagster.model.operations.states import JobState
from databuild_dagster.model.refs import PartitionRef
from databuild_dagster.model.wording import one_line

#: Of a single mark; an event records many marks.
MAX_DETAIL_BYTES = 1024 * 1024
#: Letters of an error in a mark.
MAX_ERROR = 2_000
#: Doublings of the backoff at most: a job may be retried without end.
_MAX_DOUBLINGS = 20


def backoff_seconds(attempts: int) -> float:
    """The seconds to wait after so many failures."""
    return min(BACKOFF_SECONDS * 2.0 ** min(attempts - 1, _MAX_DOUBLINGS), MAX_BACKOFF_SECONDS)


def error_text(error: Exception) -> str:
    """The type and the message of an error."""
    return f"{type(error).__name__}: {one_line(error)}"


class RetryJob(Exception):
    """Raised by a job when a retry may help: a service was down, a connection broke."""


class CannotKeep(InvalidRequest):
    """{what} is {value!r}, which cannot be kept: {why}."""


class CannotExecute(Exception):
    """Raised around jobs if this process can run none; passed on to its host."""


class Host(Protocol):
    """The executor as a job knows it."""

    manager: DistributedOperationManager
    meta: MetaStorage
    #: For the jobs' code: Spark, logging.
    extras: Any
    contexts: ContextFactory

    def beat_if_due(self) -> None:
        """Send a heartbeat if the last heartbeat is old enough."""


class JobContext:
    """A job for its code: its ref and instance, and the recording of progress and end."""

    def __init__(self, executor: Host, id: OperationId, partition: str, lease: Lease, instance: str | None) -> None:
        self._executor = executor
        self.operation = id
        #: The partition's key, "" for a dataset without partitions.
        self.partition = partition
        self.lease = lease
        #: The live instance when the operation began; the job's result is about this instance, even if it was replaced since.
        self.instance_uuid = instance
        #: The saved progress, from any executor; None to begin from scratch.
        self.progress: bytes | None = None
        #: Counts from 1, for this executor.
        self.attempt = 1
        #: True once the lease or the operation is gone. Long jobs check it.
        self.is_stopped = False
        #: True once the executor is interrupted: the job's code has to end, and the executor gives the job back.
        self.is_interrupted = False
        #: Called in both cases, perhaps from a different thread: to interrupt code that cannot check.
        self.on_stop: list[Callable[[], None]] = []
        self.extras = executor.extras
        self.mark: Mark | None = None

    @property
    def ref(self) -> PartitionRef:
        """The partition of the job."""
        return self.operation.ref(self.partition)

    @property
    def token(self) -> str:
        """The token of this lease: it names the job's writes, apart from writes under any other lease."""
        return self.lease.token

    @property
    def is_resumed(self) -> bool:
        """Whether a different executor began the job."""
        return bool(self.lease.adopted_from)

    def check(self) -> None:
        """Raises `LeaseLost` if a different executor has the job, or the operation has ended: call it before each write.

        Raises `KeyboardInterrupt` once the executor is interrupted (rule 9.4).
        """
        self._raise_if_interrupted()
        self._executor.beat_if_due()
        keys = self.operation.job(self.partition)
        state, lease, ended = self._executor.meta.get_all([self.operation.state, keys.executor, keys.state]).entries
        if state.value != records.RUNNING or lease.value != records.to_bytes(self.lease) or ended.value is not None:
            self._lost()

    def save_progress(self, progress: bytes) -> None:
        """Let the next run of the job resume here, with the bytes `progress`: at most 16 MiB.

        Raises `CannotKeep` for anything else and in a volatile operation, which ends the job as failed; `LeaseLost`; and
        `KeyboardInterrupt` once the executor is interrupted; the progress is saved then.
        """
        if not self._executor.manager.type_named(self.operation.type).resumable:
            raise CannotKeep(what="progress", value=self.operation.type, why="its jobs always begin from scratch")
        given: object = progress
        if not isinstance(given, bytes):
            why = "save_progress takes bytes, such as json.dumps(…).encode()"
            raise CannotKeep(what="the type of a job's progress", value=type(given).__name__, why=why)
        if len(progress) > MAX_VALUE_BYTES:
            why = f"{MAX_VALUE_BYTES} may be"
            raise CannotKeep(what="the progress of a job", value=f"{len(progress)} bytes", why=why)
        self._executor.beat_if_due()
        statement = invokes.save(self.operation, self.partition, self.lease, progress)
        if not self._executor.meta.invoke_all([statement]).value:
            self._lost()
        self.progress = progress
        self._raise_if_interrupted()

    @property
    def outcome(self) -> Mark:
        """The recorded mark, or success, because the job returned."""
        return self.mark or Mark(JobState.SUCCESS, self.instance_uuid, None, self.token)

    def mark_job_complete(self, success: bool = True, detail: Any = None) -> None:
        """Set the job's end, with a detail (JSON). The last call counts, and is recorded when the job returns.

        Raises `CannotKeep` for a detail that is no JSON or too large, which ends the job as failed.
        """
        try:
            n_bytes = len(records.to_bytes(detail))
        except (TypeError, ValueError, msgspec.MsgspecError) as error:
            raise CannotKeep(what="a job's detail", value=detail, why=one_line(error)) from None
        if n_bytes > MAX_DETAIL_BYTES:
            why = f"{MAX_DETAIL_BYTES} may be"
            raise CannotKeep(what="the detail of a job", value=f"{n_bytes} bytes", why=why)
        self.mark = Mark(JobState.SUCCESS if success else JobState.FAILED, self.instance_uuid, detail, self.token)

    def failed_with(self, error: str) -> Mark:
        """The mark of a job that raised."""
        return Mark(JobState.FAILED, self.instance_uuid, {"error": error[:MAX_ERROR]}, self.token)

    def stop(self) -> None:
        """Stop the job's code because the job has ended in a different way; a second call changes nothing."""
        if not self.is_stopped:
            self.is_stopped = True
            self._end_code()

    def interrupt(self) -> None:
        """Ask the job's code to end. The job keeps its lease until the executor gives it back."""
        self.is_interrupted = True
        self._end_code()

    def _end_code(self) -> None:
        for call in list(self.on_stop):
            call()

    def raise_if_stopped(self) -> None:
        """Raises `LeaseLost` once the job is stopped, and `KeyboardInterrupt` once its executor is interrupted."""
        if self.is_stopped:
            self._lost()
        self._raise_if_interrupted()

    def _raise_if_interrupted(self) -> None:
        # No Exception: a job that catches and retries its errors must end, too.
        if self.is_interrupted:
            raise KeyboardInterrupt

    def _lost(self) -> None:
        self.stop()
        raise LeaseLost(id=str(self.operation), partition=self.partition)


#: Makes the context of a job: `JobContext`, or a subclass.
ContextFactory: TypeAlias = Callable[[Host, OperationId, str, Lease, str | None], JobContext]


class Job:
    """A job that this executor has."""

    def __init__(self, operation: DistributedOperation[Any], arg: Any, context: JobContext) -> None:
        self.operation = operation
        self.arg = arg
        self.context = context
        #: The time of the next attempt, by the engine's `steady`.
        self.due_at = -inf
        #: Set once it has failed: its clean-up and then its mark must follow.
        self.failed: Mark | None = None
        #: Whether it was begun before, and may have left files.
        self.is_begun = False
        #: Whether this executor has lost it: only its clean-up must follow.
        self.is_dropped = False
        #: Its end, until that is recorded. A worker sets it before its call ends.
        self.ended: Mark | None = None
        #: The latest call of its code.
        self.call: Call | None = None

    @property
    def is_running(self) -> bool:
        return self.call is not None and not self.call.done()

    @property
    def is_idle(self) -> bool:
        """Whether its code may be called: it neither runs nor has ended."""
        return not self.is_running and self.ended is None

    @property
    def place(self) -> tuple[OperationId, str]:
        return self.context.operation, self.context.partition


def clean_up(
    executor: Host, operation: DistributedOperation[Any], arg: Any, context: JobContext, tokens: Iterable[str]
) -> None:
    """Clean up after a job under each of some tokens."""
    for token in tokens:
        of_token = context
        if token != context.token:
            lease = replace(context.lease, token=token)
            of_token = executor.contexts(executor, context.operation, context.partition, lease, context.instance_uuid)
            of_token.is_stopped = True
        operation.cancel_job_and_cleanup(arg, context.ref, of_token)


#: How long an executor waits for the end of a call.
LOOK_SECONDS = 1.0
#: Ends that follow each other sooner are recorded together, while no worker is free.
TOGETHER_SECONDS = 0.1

Call = Future[None]


class Workers(Protocol):
    """Make `n_threads` calls at a time."""

    n_threads: int

    def submit(self, function: Callable[..., None], *arguments: Any) -> Call:
        """Make the call when a thread is free."""


class InTurn:
    """Makes each call at once, in the caller's thread."""

    n_threads = 1

    def __init__(self) -> None:
        self._done: Call = Future()
        self._done.set_result(None)

    def submit(self, function: Callable[..., None], *arguments: Any) -> Call:
        """Raises the errors of the call."""
        function(*arguments)
        return self._done


def running_after(calls: set[Call], n_threads: int) -> set[Call]:
    """The calls that still run, once a call has ended and a worker is free, or after a bounded time.

    Raises an error of an ended call.
    """
    seconds = LOOK_SECONDS
    while calls:
        ended, calls = wait(calls, seconds, FIRST_COMPLETED)
        for call in ended:
            call.result()
        if not ended or len(calls) < n_threads:
            break
        seconds = TOGETHER_SECONDS
    return calls
