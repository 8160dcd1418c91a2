"""An executor takes jobs of an operation, runs them, and records how they ended (SPEC 9.5, 9.7).

What befalls a job, and what becomes of it then, is the table of `outcomes`.

Nothing here waits or starts threads: the host of an executor calls it, in a Dagster run or on a command line. The
heartbeat, `beat` and `watch`, may be of another thread.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from itertools import islice
from math import inf
from threading import RLock
from typing import Any, NamedTuple, TypeAlias

import msgspec

from databuild_dagster.engine.holders import this_process
from databuild_dagster.engine.judge import HEARTBEAT_SECONDS, Judge
from databuild_dagster.engine.operations.job import (
    MAX_ERROR,
    CannotExecute,
    Job,
    JobContext,
    backoff_seconds,
    clean_up,
    told,
)
from databuild_dagster.engine.operations.manager import DistributedOperationManager
from databuild_dagster.engine.operations.outcomes import Becomes, Befell, becomes, befell, why
from databuild_dagster.engine.operations.tracker import Tracked, Tracker, abandoned, following
from databuild_dagster.model.errors import LeaseLost
from databuild_dagster.model.meta_storage import Entry, Statement
from databuild_dagster.model.operations import invokes, records
from databuild_dagster.model.operations.keys import OperationId
from databuild_dagster.model.operations.records import Lease, Mark, Trouble
from databuild_dagster.model.operations.states import JobState
from databuild_dagster.store.errors import StoreUnusable

#: Marks that one invoke records, at most.
MARKS_AT_ONCE = 100


class Progress(NamedTuple):
    """How many jobs an operation has, and how many of them have ended how."""

    total: int
    done: int
    failed: int


#: Makes the context of a job: `JobContext`, or a subclass.
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
        #: Called for each job whose end is recorded.
        self._on_ended = on_ended
        #: Called for each job that is tried again, and why.
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
        #: Jobs whose end is not recorded yet.
        self._ended: list[tuple[Job, Mark]] = []
        #: An invoke whose reply was lost: repeated under the same command id.
        self._unanswered: tuple[str, list[tuple[Job, Mark]]] | None = None

    @property
    def now(self) -> float:
        return self.manager.engine.clock()

    def beat(self) -> None:
        """Record that this executor is alive; at least every `HEARTBEAT_SECONDS` while it has jobs."""
        self._beaten_at = self.now
        self.manager.engine.beat([self.id])

    def beat_if_due(self) -> None:
        """The same, no more often than needed."""
        if not 0 <= self.now - self._beaten_at < HEARTBEAT_SECONDS / 2:
            self.beat()

    def progress(self, id: OperationId) -> Progress | None:
        """How far an operation has come; None once it has ended."""
        with self._lock:
            tracked = self._tracked(id)
            if tracked is None:
                return None
            return Progress(len(tracked.partitions), len(tracked.done) - tracked.n_failed, tracked.n_failed)

    def _tracked(self, id: OperationId) -> Tracked | None:
        tracker = self._trackers.setdefault(id, Tracker(self.meta, id))
        tracker.look()
        return tracker.find(id)

    # Taking

    def take(self, id: OperationId, most: int) -> list[Job]:
        """Jobs that no executor has, or whose executor is gone, in one invoke.

        Raises `UnknownOperationType`, `NewerOperation`, for what this executor cannot run.
        """
        self.beat()
        self.judge.look(self.now)
        with self._lock:
            tracked = self._tracked(id)
            if tracked is None or tracked.arg is None:
                return []
            operation, arg = self.manager.type_named(id.type), self.manager.arg_for(id, tracked.arg)
            mine = {partition for of, partition in self.jobs if of == id}
            left_alone = abandoned(tracked, self.manager, self.judge, self.now, self.id, mine)
            # A job that was left alone has waited longer.
            wanted: dict[str, bytes | None] = dict(islice(left_alone.items(), most))
            wanted.update((partition, None) for partition in islice(tracked.free, most - len(wanted)))
            if not wanted:
                return []
            new_id = self.manager.engine.new_id
            leases = {
                partition: Lease(new_id(), self.id, self.holder, self.now, following(before))
                for partition, before in wanted.items()
            }
            statements = [invokes.take(id, partition, wanted[partition], lease) for partition, lease in leases.items()]
            values = self.meta.invoke_all(statements).values
            jobs = [
                Job(operation, arg, self.contexts(self, id, partition, lease, tracked.partitions[partition]))
                for (partition, lease), is_taken in zip(leases.items(), values, strict=True)
                if is_taken
            ]
            if operation.resumable and jobs:
                progress = self.meta.get_all([id.job(job.context.partition).progress for job in jobs])
                for job, entry in zip(jobs, progress.entries, strict=True):
                    job.context.progress = entry.value
            self.jobs.update({job.place: job for job in jobs})
            return jobs

    # Running

    def run(self, *jobs: Job) -> None:
        """Once, now; several, of one batched operation, in one call. `flush` records how they ended.

        Never raises what the jobs do.
        """
        ready = [job for job in jobs if self._is_ready(job)]
        if ready:
            self._call(*ready)
        if len(self._ended) >= MARKS_AT_ONCE:
            self.flush()

    def _is_ready(self, job: Job) -> bool:
        """Whether its code may be called; otherwise what is left of it to do is done here."""
        if job.context.is_stopped:
            self._drop(job)
        elif job.failed is not None:
            self._fail(job, job.failed)
        else:
            with self._guarded(job):
                if not job.operation.resumable:
                    # What an attempt before has left is in the way of one that begins from scratch.
                    before = (job.context.token,) if job.is_begun else job.context.lease.adopted_from
                    clean_up(self, job.operation, job.arg, job.context, before)
                job.is_begun = True
                job.context.said = None
                return True
        return False

    def _call(self, *jobs: Job) -> None:
        operation, arg, contexts = jobs[0].operation, jobs[0].arg, [job.context for job in jobs]
        returned: tuple[Job, ...] = ()
        with self._guarded(*jobs):
            with self._around(contexts):
                if operation.batched:
                    operation.start_or_resume_jobs(arg, contexts)
                else:
                    operation.start_or_resume_job(arg, contexts[0].ref, contexts[0])
            returned = jobs
        # Outside of the guard: what a hook of the host raises is no error of the batch, which would run again.
        for job in returned:
            succeeded = job.context.outcome.state is JobState.SUCCESS
            self._settle(Befell.SUCCEEDED if succeeded else Befell.SAID_FAILED, job)

    @contextmanager
    def _guarded(self, *jobs: Job) -> Iterator[None]:
        """What raises in here befalls these jobs, but for what is not theirs: no process can record that."""
        try:
            yield
        except (StoreUnusable, CannotExecute):
            raise
        except Exception as error:
            self._settle(befell(jobs, error), *jobs, error=self._explained(error))

    def _settle(self, what: Befell, *jobs: Job, error: str = "") -> None:
        """What becomes of jobs, by the table."""
        match becomes(what, can_fail=jobs[0].operation.can_fail):
            case Becomes.MARKED:
                self._ended += [(job, job.context.outcome) for job in jobs]
            case Becomes.FAILED:
                for job in jobs:
                    said = job.context.failed_with(error) if what is Befell.RAISED else job.context.outcome
                    self._fail(job, said)
            case Becomes.RETRIED:
                self._again(why(what, jobs[0], error), *jobs)
            case Becomes.DROPPED:
                for job in jobs:
                    job.context.stop()
                    self._drop(job)
            case Becomes.HALVED:
                self.beat_if_due()
                for half in (jobs[: len(jobs) // 2], jobs[len(jobs) // 2 :]):
                    self.run(*half)

    def _fail(self, job: Job, mark: Mark) -> None:
        """For good: clean up, then mark. Of a resumable job its progress goes first, for an heir may be resuming from it."""
        job.failed = mark
        with self._guarded(job):
            lease = job.context.lease
            if job.operation.resumable and not self.meta.invoke_all([invokes.forget(*job.place, lease)]).value:
                raise LeaseLost(id=str(job.context.operation), partition=job.context.partition)
            self._clean(job)
            self._ended.append((job, mark))

    def _again(self, why: str, *jobs: Job) -> None:
        """Later; and why is recorded for others to see, of what is still this executor's."""
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

    def _clean(self, job: Job) -> None:
        """What this executor has left, and those that it had the job from."""
        lease = job.context.lease
        clean_up(self, job.operation, job.arg, job.context, (*lease.adopted_from, lease.token))

    # Recording

    def flush(self) -> None:
        """Record how jobs ended, many in one invoke; a job whose mark is not applied is cleaned up (SPEC 9.5)."""
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
                    # Its clean-up came before the mark.
                    self._forget(job)
                else:
                    self._settle(Befell.NOT_MARKED, job)

    # Stopping

    def watch(self) -> list[Job]:
        """Stop jobs whose operation is gone, or which another executor has (SPEC 9.7); these.

        A host that runs jobs in threads calls this beside the heartbeat; `run` cleans up after stopped jobs.
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
        statements: list[Statement] = []
        for job in self.jobs.values():
            try:
                if not job.operation.resumable:
                    self._clean(job)
            except StoreUnusable:
                raise
            except Exception:
                # It keeps its lease: the executor that adopts it cleans up.
                continue
            statements.append(invokes.give_back(*job.place, job.context.lease))
        if statements:
            self.meta.invoke_all(statements)
        with self._lock:
            self.jobs.clear()

    def _drop(self, job: Job) -> None:
        """Another has it, or none needs it. A resumable job's work went with its progress to who adopted it, if one did."""
        job.is_dropped = True
        with self._guarded(job):
            if not job.operation.resumable or self._note_of(job) is not None:
                self._clean(job)
            self._forget(job)

    def _note_of(self, job: Job) -> Entry | None:
        """The note that its operation ended while this executor had it, and so has to clean up."""
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
        """Take jobs, run those that are due, record how they ended. False when none was due."""
        self.watch()
        if len(self.jobs) < most:
            self.take(operation, most - len(self.jobs))
        ended = {id(job) for job, _ in self._ended}
        now = self.manager.engine.steady()
        due = [job for job in self.jobs.values() if job.due_at <= now and id(job) not in ended]
        for batch in _batches(due):
            self.beat_if_due()
            self.run(*batch)
        self.flush()
        return bool(due)


def _batches(jobs: Iterable[Job]) -> list[list[Job]]:
    """Jobs of one batched operation are run together, all others alone."""
    found: dict[object, list[Job]] = {}
    for job in jobs:
        found.setdefault(job.context.operation if job.operation.batched else job.place, []).append(job)
    return list(found.values())
