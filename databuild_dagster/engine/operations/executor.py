"""An executor takes jobs of an operation, runs them, and says how they ended (SPEC 9.5, 9.7).

| what befalls a job                                    | what becomes of it                                             |
|-------------------------------------------------------|----------------------------------------------------------------|
| it returns                                            | marked success                                                 |
| it raises, or says that it failed; `can_fail`         | cleaned up, then marked failed                                 |
| it raises `RetryJob`; or anything, not `can_fail`     | tried again later, by this executor; noted why                 |
| its clean-up raises                                   | cleaned up again later; not marked before                      |
| its lease, or its operation, is gone                  | stopped and cleaned up, marked by nobody here                  |
| its mark is not applied                               | ignored, and cleaned up                                        |
| its executor is gone                                  | taken by another: resumed from its progress, or begun anew     |
| it is one of a batch, and the batch raises            | tried in halves, until what is guilty is alone                 |
| nothing can be run in this process                    | given back, by whoever hosts the executor (`CannotExecute`)    |

What a resumable job has written goes with its progress to who adopts it, and so does the duty to clean up.

Nothing here waits or starts threads: who hosts an executor calls it, in a Dagster run or on a command line. The heartbeat,
`beat` and `watch`, may be of another thread.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager, nullcontext
from itertools import islice
from math import inf
from threading import RLock
from typing import Any, NamedTuple, TypeAlias

import msgspec
from msgspec.structs import replace

from databuild_dagster.engine.holders import this_process
from databuild_dagster.engine.judge import HEARTBEAT_SECONDS, Judge
from databuild_dagster.engine.operations.manager import DistributedOperation, DistributedOperationManager
from databuild_dagster.engine.operations.tracker import Tracked, Tracker
from databuild_dagster.model.decide.context import BACKOFF_SECONDS, MAX_BACKOFF_SECONDS
from databuild_dagster.model.errors import InvalidRequest
from databuild_dagster.model.meta_storage import Entry, Statement
from databuild_dagster.model.operations import invokes, records
from databuild_dagster.model.operations.errors import LeaseLost
from databuild_dagster.model.operations.keys import OperationId
from databuild_dagster.model.operations.records import Lease, Mark, Trouble
from databuild_dagster.model.operations.states import JobState
from databuild_dagster.model.refs import PartitionRef
from databuild_dagster.model.wording import one_line
from databuild_dagster.store.errors import StoreUnusable

#: Marks that are said together, at most.
MARKS_AT_ONCE = 100
#: Of one mark: many of them are recorded as one event.
MAX_DETAIL_BYTES = 1024 * 1024
#: Letters of an error that are kept with a mark.
MAX_ERROR = 2_000


#: Doubled so often at most: a job may be tried for ever.
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
    """What a job is told of itself, and what it can say while it runs."""

    def __init__(self, executor: Executor, id: OperationId, partition: str, lease: Lease, instance: str | None) -> None:
        self._executor = executor
        self.operation = id
        #: The partition's key, "" for a dataset without partitions.
        self.partition = partition
        self.lease = lease
        #: What was live when the operation began; what the job finds out is said of this one, whatever came since.
        self.instance_uuid = instance
        #: What the job has saved before, under whichever executor; None to begin from scratch.
        self.progress: bytes | None = None
        #: Counts from 1, for this executor.
        self.attempt = 1
        #: True once the lease or the operation is gone. A job that runs for long looks at it.
        self.is_stopped = False
        #: Called when it becomes so, perhaps by another thread: to interrupt what cannot look.
        self.on_stop: list[Callable[[], None]] = []
        #: For whoever hosts executors: Spark, logging.
        self.extras = executor.extras
        self.said: Mark | None = None

    @property
    def ref(self) -> PartitionRef:
        return self.operation.ref(self.partition)

    @property
    def token(self) -> str:
        """Of this lease alone: what a job writes under it is told apart from what it wrote under another."""
        return self.lease.token

    @property
    def is_resumed(self) -> bool:
        """Whether another executor has begun it."""
        return bool(self.lease.adopted_from)

    def check(self) -> None:
        """Raises `LeaseLost` when another executor has the job by now, or the operation has ended: ask before each write."""
        self._executor._beat_if_due()
        keys = self.operation.job(self.partition)
        state, lease, ended = self._executor.meta.get_all([self.operation.state, keys.executor, keys.state]).entries
        if state.value != records.RUNNING or lease.value != records.to_bytes(self.lease) or ended.value is not None:
            self._lost()

    def save_progress(self, progress: bytes) -> None:
        """From here whoever runs the job next goes on. Raises `LeaseLost`; `InvalidRequest` for a volatile operation."""
        if not self._executor.manager.type_named(self.operation.type).resumable:
            raise InvalidRequest(what="progress", value=self.operation.type, why="its jobs always begin anew")
        self._executor._beat_if_due()
        statement = invokes.save(self.operation, self.partition, self.lease, progress)
        if not self._executor.meta.invoke_all([statement]).value:
            self._lost()
        self.progress = progress

    @property
    def outcome(self) -> Mark:
        """What it has said, or what returning says."""
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

    def stop(self) -> None:
        if not self.is_stopped:
            self.is_stopped = True
            for call in self.on_stop:
                call()

    def _lost(self) -> None:
        self.stop()
        raise LeaseLost(id=str(self.operation), partition=self.partition)


class Progress(NamedTuple):
    """How many jobs an operation has, and how many of them have ended how."""

    total: int
    done: int
    failed: int


class Job:
    """One job that this executor has."""

    def __init__(self, operation: DistributedOperation[Any], arg: Any, context: JobContext) -> None:
        self.operation = operation
        self.arg = arg
        self.context = context
        #: When it may be tried (again), as the engine's `steady` measures.
        self.due_at = -inf
        #: Set once it has failed for good: what is left is to clean up, and then to say so.
        self.failed: Mark | None = None
        #: Whether it was tried before: then something of it may lie about.
        self.is_begun = False

    @property
    def place(self) -> tuple[OperationId, str]:
        return self.context.operation, self.context.partition


#: Makes what a job is told; `JobContext`, or more of it.
ContextFactory: TypeAlias = Callable[["Executor", OperationId, str, Lease, str | None], JobContext]
#: What is around a call of an operation's code with these contexts: Spark's tags, the naming of failures.
Around: TypeAlias = Callable[[Sequence[JobContext]], AbstractContextManager[None]]


class Executor:
    """Runs jobs in one process. Its heartbeat (`beat`) counts for every job that it has."""

    def __init__(
        self,
        manager: DistributedOperationManager,
        *,
        judge: Judge | None = None,
        holder: str | None = None,
        extras: Any = None,
        contexts: ContextFactory = JobContext,
        around: Around = lambda contexts: nullcontext(),
        on_ended: Callable[[JobContext, Mark], None] = lambda context, mark: None,
        on_retry: Callable[[JobContext, Trouble], None] = lambda context, trouble: None,
        explained: Callable[[Exception], str] = told,
    ) -> None:
        self.manager = manager
        self.meta = manager.meta
        self.contexts = contexts
        self._around = around
        #: Hears of each job whose end is recorded.
        self._on_ended = on_ended
        #: Hears of each job that is to be tried again, and why.
        self._on_retry = on_retry
        #: An error as it is recorded.
        self._explained = explained
        self.judge = judge or Judge()
        self.holder = holder or this_process()
        self.extras = extras
        self.id = manager.engine.new_id()
        #: What it has, and has not ended.
        self.jobs: dict[tuple[OperationId, str], Job] = {}
        #: Around what the heartbeat's thread uses too: the jobs and the trackers.
        self._lock = RLock()
        self._beaten_at = -inf
        self._trackers: dict[OperationId, Tracker] = {}
        #: Jobs whose end is not said yet.
        self._ended: list[tuple[Job, Mark]] = []
        #: Invokes that were begun and not answered: said again under the same command id.
        self._unanswered: tuple[str, list[tuple[Job, Mark]]] | None = None

    @property
    def now(self) -> float:
        return self.manager.engine.clock()

    def beat(self) -> None:
        """Say that this executor is alive; at least every `HEARTBEAT_SECONDS` while it has jobs."""
        self._beaten_at = self.now
        self.manager.engine.beat([self.id])

    def _beat_if_due(self) -> None:
        if not 0 <= self.now - self._beaten_at < HEARTBEAT_SECONDS / 2:
            self.beat()

    def progress(self, id: OperationId) -> Progress | None:
        """How far an operation has come; None once it has ended."""
        with self._lock:
            tracked = self._tracked(id)
            if tracked is None:
                return None
            return Progress(len(tracked.partitions), len(tracked.done) - tracked.n_failed, tracked.n_failed)

    # Taking

    def take(self, id: OperationId, most: int) -> list[Job]:
        """Jobs that nobody has, or whose executor is gone, in one invoke.

        Raises `UnknownOperationType`, `NewerOperation`, for what this executor cannot run.
        """
        self.beat()
        self.judge.look(self.now)
        with self._lock:
            return self._take(id, most)

    def _take(self, id: OperationId, most: int) -> list[Job]:
        tracked = self._tracked(id)
        if tracked is None or tracked.arg is None:
            return []
        operation, arg = self.manager.type_named(id.type), self.manager.arg_for(id, tracked.arg)
        # Who was left alone has waited longer.
        wanted: dict[str, bytes | None] = {**self._abandoned(tracked, most)}
        wanted.update((partition, None) for partition in islice(tracked.free, most - len(wanted)))
        if not wanted:
            return []
        leases = {partition: self._lease(before) for partition, before in wanted.items()}
        statements = [invokes.take(id, partition, wanted[partition], lease) for partition, lease in leases.items()]
        values = self.meta.invoke_all(statements).values
        taken = [partition for partition, value in zip(leases, values, strict=True) if value]
        jobs = [
            Job(operation, arg, self.contexts(self, id, partition, leases[partition], tracked.partitions[partition]))
            for partition in taken
        ]
        self._resume(jobs)
        self.jobs.update({job.place: job for job in jobs})
        return jobs

    def _tracked(self, id: OperationId) -> Tracked | None:
        tracker = self._trackers.setdefault(id, Tracker(self.meta, id))
        tracker.look()
        return tracker.find(id)

    def _abandoned(self, tracked: Tracked, most: int) -> dict[str, bytes]:
        """Jobs whose executor is gone; and what this one took without hearing that it has it."""
        leases = (taken.lease for taken in tracked.taken.values())
        others = (lease for lease in leases if lease.executor != self.id and not lease.released)
        gone = gone_of(others, self.manager, self.judge, self.now)
        found: dict[str, bytes] = {}
        for partition, (value, lease) in tracked.taken.items():
            is_unheard = lease.executor == self.id and (tracked.id, partition) not in self.jobs
            if (lease.released or lease.executor in gone or is_unheard) and len(found) < most:
                found[partition] = value
        return found

    def _lease(self, before: bytes | None) -> Lease:
        adopted_from: tuple[str, ...] = ()
        if before is not None:
            lease = records.lease_of(before)
            adopted_from = (*lease.adopted_from, lease.token)[-records.MAX_ADOPTIONS :]
        return Lease(self.manager.engine.new_id(), self.id, self.holder, self.now, adopted_from)

    def _resume(self, jobs: list[Job]) -> None:
        """With what each has saved before."""
        resumed = [job for job in jobs if job.operation.resumable]
        if resumed:
            keys = [job.context.operation.job(job.context.partition).progress for job in resumed]
            for job, entry in zip(resumed, self.meta.get_all(keys).entries, strict=True):
                job.context.progress = entry.value

    # Running

    def run(self, *jobs: Job) -> None:
        """Once, now; several, of one batched operation, in one call. How they ended is said by `flush`.

        Never raises what the jobs do.
        """
        if len(jobs) == 1:
            self._run_one(jobs[0])
        else:
            self._run_batch(jobs)
        if len(self._ended) >= MARKS_AT_ONCE:
            self.flush()

    def _run_one(self, job: Job) -> None:
        context = job.context
        if context.is_stopped:
            self._drop(job)
            return
        try:
            if job.failed is None:
                self._prepare(job)
                with self._around([context]):
                    if job.operation.batched:
                        job.operation.start_or_resume_jobs(job.arg, [context])
                    else:
                        job.operation.start_or_resume_job(job.arg, context.ref, context)
                self._accept(job)
            else:
                self._clean_up_failed(job)
                self._ended.append((job, job.failed))
        except LeaseLost:
            context.stop()
            self._drop(job)
        except (StoreUnusable, CannotExecute):
            # Not the job's fault, and nobody could be told.
            raise
        except Exception as error:
            self._failed(job, error)

    def _run_batch(self, jobs: Sequence[Job]) -> None:
        """Halves are tried when all of them together raise: a job that fails alone has failed by itself."""
        left = []
        for job in jobs:
            if job.context.is_stopped or job.failed is not None:
                self._run_one(job)
            elif self._is_prepared(job):
                left.append(job)
        if len(left) < 2:
            for job in left:
                self._run_one(job)
            return
        contexts = [job.context for job in left]
        try:
            with self._around(contexts):
                left[0].operation.start_or_resume_jobs(left[0].arg, contexts)
        except (StoreUnusable, CannotExecute):
            raise
        except RetryJob as error:
            self._again(self._explained(error), *left)
        except Exception:
            # LeaseLost too: its context is stopped, and it alone is dropped by the next try.
            self._beat_if_due()
            for half in (left[: len(left) // 2], left[len(left) // 2 :]):
                self.run(*half)
        else:
            for job in left:
                try:
                    self._accept(job)
                except LeaseLost:
                    job.context.stop()
                    self._drop(job)
                except StoreUnusable:
                    raise
                except Exception as error:
                    self._failed(job, error)

    def _is_prepared(self, job: Job) -> bool:
        try:
            self._prepare(job)
        except LeaseLost:
            job.context.stop()
            self._drop(job)
            return False
        except StoreUnusable:
            raise
        except Exception as error:
            self._failed(job, error)
            return False
        return True

    def _prepare(self, job: Job) -> None:
        context = job.context
        if not job.operation.resumable:
            # What an attempt before has left is in the way of one that begins anew.
            before = (context.token,) if job.is_begun else context.lease.adopted_from
            clean_up(self, job.operation, job.arg, context, before)
        job.is_begun = True
        context.said = None

    def _accept(self, job: Job) -> None:
        """It has returned; what it has said is how it ended."""
        said = job.context.outcome
        if said.state is JobState.SUCCESS:
            self._ended.append((job, said))
        elif not job.operation.can_fail:
            detail = "" if said.detail is None else f": {records.to_bytes(said.detail).decode()}"
            self._again(f"it said that it failed{detail}", job)
        else:
            job.failed = said
            self._clean_up_failed(job)
            self._ended.append((job, said))

    def _failed(self, job: Job, error: Exception) -> None:
        if job.context.is_stopped:
            # What it was interrupted with says nothing of it.
            self._drop(job)
        elif job.failed is None and job.operation.can_fail and not isinstance(error, RetryJob):
            detail = {"error": self._explained(error)[:MAX_ERROR]}
            job.failed = Mark(JobState.FAILED, job.context.instance_uuid, detail, job.context.token)
            try:
                self._clean_up_failed(job)
            except StoreUnusable:
                raise
            except LeaseLost:
                self._drop(job)
            except Exception as cleaning:
                self._again(f"its clean-up raised {self._explained(cleaning)}", job)
            else:
                self._ended.append((job, job.failed))
        elif job.failed is not None:
            self._again(f"its clean-up raised {self._explained(error)}", job)
        else:
            self._again(self._explained(error), job)

    def _again(self, why: str, *jobs: Job) -> None:
        """Later; and why is said where others see it, of what is still this executor's."""
        noted = []
        for job in jobs:
            context = job.context
            wait, now = backoff_seconds(context.attempt), self.manager.engine.now()
            job.due_at = self.manager.engine.steady() + wait
            trouble = Trouble(why[:MAX_ERROR], context.attempt, now, now + wait)
            context.attempt += 1
            if not context.is_stopped:
                noted.append(invokes.note_trouble(*job.place, context.lease, trouble))
            self._on_retry(context, trouble)
        if noted:
            self.meta.invoke_all(noted)

    def _clean_up_failed(self, job: Job) -> None:
        """Of a resumable job first the word that there is nothing to go on from: who adopted it may be doing so."""
        context = job.context
        if job.operation.resumable and not self.meta.invoke_all([invokes.forget(*job.place, context.lease)]).value:
            raise LeaseLost(id=str(context.operation), partition=context.partition)
        self._clean(job)

    def _clean(self, job: Job) -> None:
        """What this executor has left, and those that it had the job from."""
        lease = job.context.lease
        clean_up(self, job.operation, job.arg, job.context, (*lease.adopted_from, lease.token))

    # Saying

    def flush(self) -> None:
        """Say how jobs have ended, many in one invoke; what is not taken is cleaned up (SPEC 9.5)."""
        while self._ended or self._unanswered is not None:
            if self._unanswered is None:
                some, self._ended = self._ended[:MARKS_AT_ONCE], self._ended[MARKS_AT_ONCE:]
                self._unanswered = self.manager.engine.new_id(), some
            command_id, some = self._unanswered
            statements = [invokes.mark(*job.place, job.context.lease, mark) for job, mark in some]
            values = self.meta.invoke_all(statements, command_id=command_id).values
            self._unanswered = None
            for (job, mark), is_taken in zip(some, values, strict=True):
                if is_taken:
                    self._let_go(job)
                    self._on_ended(job.context, mark)
                elif mark is job.failed:
                    # Cleaned up before it was said.
                    self._forget(job)
                else:
                    job.context.stop()
                    self._drop(job)

    # Stopping

    def watch(self) -> list[Job]:
        """Hear of operations that are gone, and of jobs that another has (SPEC 9.7); those are told to stop.

        Whoever runs jobs in threads calls this beside the heartbeat; `run` cleans up what was stopped.
        """
        stopped = []
        with self._lock:
            for id in dict.fromkeys(id for id, _ in self.jobs):
                tracked = self._tracked(id)
                for job in [job for (of, _), job in self.jobs.items() if of == id]:
                    context = job.context
                    taken = tracked.taken.get(context.partition) if tracked is not None else None
                    lease = taken.lease if taken is not None else None
                    is_mine = lease is not None and lease.token == context.token and not lease.released
                    if not is_mine and not context.is_stopped:
                        stopped.append(job)
        # Without the lock, for what is interrupted may take its time to answer.
        for job in stopped:
            job.due_at = -inf
            job.context.stop()
        return stopped

    def give_back(self) -> None:
        """Let others have at once what this executor has not begun or not ended, as it ends in good order."""
        self.flush()
        left = [job for job in self.jobs.values() if job.operation.resumable or self._is_cleaned(job)]
        statements: list[Statement] = [invokes.give_back(*job.place, job.context.lease) for job in left]
        if statements:
            self.meta.invoke_all(statements)
        with self._lock:
            self.jobs.clear()

    def _is_cleaned(self, job: Job) -> bool:
        """What cannot be cleaned up now is left to whoever adopts it."""
        try:
            self._clean(job)
        except StoreUnusable:
            raise
        except Exception:
            return False
        return True

    def _drop(self, job: Job) -> None:
        """Another has it, or nobody needs it. A resumable job's work went with its progress to who adopted it, if somebody did."""
        try:
            if not job.operation.resumable or self._note_of(job) is not None:
                self._clean(job)
        except StoreUnusable:
            raise
        except Exception as error:
            self._again(f"its clean-up raised {self._explained(error)}", job)
        else:
            self._forget(job)

    def _note_of(self, job: Job) -> Entry | None:
        """That its operation ended while this executor had it, and so has to clean up."""
        note = self.meta.get(job.context.operation.job(job.context.partition).unclean)
        try:
            is_mine = note.value is not None and records.unclean_of(note.value).lease.token == job.context.token
        except msgspec.MsgspecError:
            # Newer code has ended it, and cleans up.
            is_mine = False
        return note if is_mine else None

    def _let_go(self, job: Job) -> None:
        with self._lock:
            self.jobs.pop(job.place, None)

    def _forget(self, job: Job) -> None:
        self._let_go(job)
        note = self._note_of(job)
        if note is not None:
            self.meta.remove(note.key)

    # All of it

    @property
    def seconds_until_due(self) -> float:
        """How long until one of the jobs that it has may be tried again; 0 where it has none."""
        soonest = min((job.due_at for job in self.jobs.values()), default=-inf)
        return max(soonest - self.manager.engine.steady(), 0.0)

    def step(self, operation: OperationId, most: int) -> bool:
        """Take jobs, run what is due, say how it ended. False when there was nothing to do."""
        self.watch()
        if len(self.jobs) < most:
            self.take(operation, most - len(self.jobs))
        ended = {id(job) for job, _ in self._ended}
        now = self.manager.engine.steady()
        due = [job for job in self.jobs.values() if job.due_at <= now and id(job) not in ended]
        for batch in _batches(due):
            self._beat_if_due()
            self.run(*batch)
        self.flush()
        return bool(due)


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


def _batches(jobs: Iterable[Job]) -> list[list[Job]]:
    """Jobs of one batched operation are run together, all others alone."""
    found: dict[object, list[Job]] = {}
    for job in jobs:
        found.setdefault(job.context.operation if job.operation.batched else job.place, []).append(job)
    return list(found.values())


def gone_of(leases: Iterable[Lease], manager: DistributedOperationManager, judge: Judge, now: float) -> set[str]:
    """The executors, or coordinators, among those of leases that are gone (SPEC 9.5)."""
    latest: dict[str, Lease] = {}
    for lease in leases:
        if lease.executor not in latest or latest[lease.executor].at < lease.at:
            latest[lease.executor] = lease
    if not latest:
        return set()
    heard = manager.engine.heartbeats.last(latest)
    return {
        executor
        for executor, lease in latest.items()
        if judge.why_gone(executor, lease.holder, (lease.at, heard.get(executor, 0.0)), now) is not None
    }
