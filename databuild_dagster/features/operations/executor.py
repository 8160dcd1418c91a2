"""An executor takes jobs of an operation, runs them, and records how they ended (rules 9.5, 9.7).

`outcomes` is the table of the results of a job. The host of an executor calls it, in a Dagster run or on a command line, and
gives it the workers that call the jobs' code. `beat` and `watch` may be called from any thread.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from itertools import islice
from math import ceil, inf
from threading import RLock
from typing import Any, NamedTuple, TypeAlias

import msgspec

from databuild_dagster.engine.holders import this_process
from databuild_dagster.engine.judge import HEARTBEAT_SECONDS, Judge
from databuild_dagster.features.operations.job import (
    MAX_ERROR,
    Call,
    CannotExecute,
    ContextFactory,
    InTurn,
    Job,
    JobContext,
    Workers,
    backoff_seconds,
    clean_up,
    error_text,
    running_after,
)
from databuild_dagster.features.operations.manager import DistributedOperationManager
from databuild_dagster.features.operations.outcomes import JobOutcome, NextStep, next_step, outcome_of, why
from databuild_dagster.features.operations.tracker import Tracked, Tracker, abandoned, following
from databuild_dagster.model.errors import LeaseLost
from databuild_dagster.model.meta_storage import Entry, Statement
from databuild_dagster.model.operations import invokes, records
from databuild_dagster.model.operations.keys import OperationId
from databuild_dagster.model.operations.records import Lease, Mark, Trouble
from databuild_dagster.model.operations.states import JobState
from databuild_dagster.store.errors import StoreUnusable

#: Marks that an invoke records, at most.
MARKS_AT_ONCE = 100

IN_TURN = InTurn()


class Progress(NamedTuple):
    """The number of an operation's jobs, of succeeded jobs and of failed jobs."""

    total: int
    done: int
    failed: int


#: Wraps a call of an operation's code with the given contexts: Spark's tags, the naming of failures.
Around: TypeAlias = Callable[[Sequence[JobContext]], AbstractContextManager[None]]


class Executor:
    """Runs jobs in a process. Its heartbeat (`beat`) counts for every job that it has."""

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
        explained: Callable[[Exception], str] = error_text,
    ) -> None:
        self.manager = manager
        self.meta = manager.meta
        self.contexts = contexts
        self._around = around
        #: Called for each job whose end is recorded.
        self._on_ended = on_ended
        #: Called for each job that is retried.
        self._on_retry = on_retry
        #: The text of an error.
        self._explained = explained
        self.judge = judge or Judge()
        self.holder = holder or this_process()
        self.extras = extras
        self.id = manager.engine.new_id()
        #: The jobs that it has and that have not ended.
        self.jobs: dict[tuple[OperationId, str], Job] = {}
        #: Guards the jobs and the trackers, which the heartbeat's thread uses, too.
        self._lock = RLock()
        self._beaten_at = -inf
        self._trackers: dict[OperationId, Tracker] = {}
        #: Calls whose end `step` has not seen.
        self._calls: set[Call] = set()
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
        """The same, if the last heartbeat is old enough."""
        if not 0 <= self.now - self._beaten_at < HEARTBEAT_SECONDS / 2:
            self.beat()

    def progress(self, id: OperationId) -> Progress | None:
        """The progress of an operation; None once it has ended."""
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
        """Take jobs without an executor, or whose executor is gone, in a single invoke.

        Raises `UnknownOperationType`, `NewerOperation`.
        """
        self.beat()
        self.judge.look(self.manager.engine.steady())
        with self._lock:
            tracked = self._tracked(id)
            if tracked is None or tracked.arg is None:
                return []
            operation, arg = self.manager.type_named(id.type), self.manager.arg_for(id, tracked.arg)
            mine = {partition for of, partition in self.jobs if of == id}
            left_alone = abandoned(tracked, self.manager, self.judge, self.id, mine)
            # An abandoned job has waited longer.
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
        """Run a job, or several of the same batched operation in a single call. `flush` records how they ended.

        Never raises the errors of the jobs.
        """
        self.beat_if_due()
        ready = [job for job in jobs if self._is_ready(job)]
        if ready:
            self._call(*ready)

    def _is_ready(self, job: Job) -> bool:
        """Whether the job's code may be called; otherwise its end is handled here."""
        if job.context.is_stopped:
            self._drop(job)
        elif job.context.is_interrupted:
            return False
        elif job.failed is not None:
            self._fail(job, job.failed)
        else:
            with self._guarded(job):
                if not job.operation.resumable:
                    # A job that begins from scratch needs a clean place.
                    before = (job.context.token,) if job.is_begun else job.context.lease.adopted_from
                    clean_up(self, job.operation, job.arg, job.context, before)
                job.is_begun = True
                job.context.mark = None
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
        # Outside of the guard: an error of the host's hook must not run the batch again.
        for job in returned:
            succeeded = job.context.outcome.state is JobState.SUCCESS
            self._settle(JobOutcome.SUCCEEDED if succeeded else JobOutcome.SAID_FAILED, job)

    @contextmanager
    def _guarded(self, *jobs: Job) -> Iterator[None]:
        """Settle the jobs with an error of the block; errors of the store or of this process are raised."""
        try:
            yield
        except (StoreUnusable, CannotExecute):
            raise
        except Exception as error:
            self._settle(outcome_of(jobs, error), *jobs, error=self._explained(error))

    def _settle(self, what: JobOutcome, *jobs: Job, error: str = "") -> None:
        """Apply the table of `outcomes`."""
        match next_step(what, can_fail=jobs[0].operation.can_fail):
            case NextStep.MARKED:
                for job in jobs:
                    job.ended = job.context.outcome
            case NextStep.FAILED:
                for job in jobs:
                    said = job.context.failed_with(error) if error else job.context.outcome
                    self._fail(job, said)
            case NextStep.RETRIED:
                self._again(why(what, jobs[0], error), *jobs)
            case NextStep.DROPPED:
                for job in jobs:
                    job.context.stop()
                    self._drop(job)
            case NextStep.HALVED:
                for half in (jobs[: len(jobs) // 2], jobs[len(jobs) // 2 :]):
                    self.run(*half)
            case NextStep.GIVEN_BACK:
                # `give_back` cleans up after it, and releases it.
                pass

    def _fail(self, job: Job, mark: Mark) -> None:
        """Clean up, then mark. The progress of a resumable job is removed first: the next executor may resume from it."""
        job.failed = mark
        with self._guarded(job):
            lease = job.context.lease
            if job.operation.resumable and not self.meta.invoke_all([invokes.forget(*job.place, lease)]).value:
                raise LeaseLost(id=str(job.context.operation), partition=job.context.partition)
            self._clean(job)
            job.ended = mark

    def _again(self, why: str, *jobs: Job) -> None:
        """Retry later, and record why for jobs that this executor still has."""
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
        """Clean up after this executor and after executors that had the job before."""
        lease = job.context.lease
        clean_up(self, job.operation, job.arg, job.context, (*lease.adopted_from, lease.token))

    # Recording

    def flush(self) -> None:
        """Record how jobs ended, many in an invoke; clean up after a job whose mark is not applied (rule 9.5)."""
        while True:
            if self._unanswered is None:
                with self._lock:
                    ended = [(job, job.ended) for job in self.jobs.values() if job.ended is not None]
                if not ended:
                    return
                self._unanswered = self.manager.engine.new_id(), ended[:MARKS_AT_ONCE]
            command_id, some = self._unanswered
            statements = [invokes.mark(*job.place, job.context.lease, mark) for job, mark in some]
            values = self.meta.invoke_all(statements, command_id=command_id).values
            self._unanswered = None
            for (job, mark), is_taken in zip(some, values, strict=True):
                job.ended = None
                if is_taken:
                    self._let_go(job)
                    self._on_ended(job.context, mark)
                elif mark is job.failed:
                    # It is cleaned up already.
                    self._forget(job)
                else:
                    self._settle(JobOutcome.NOT_MARKED, job)

    # Stopping

    def watch(self) -> list[Job]:
        """Stop jobs whose operation is gone, or which a different executor has (rule 9.7); returns them.

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
        # Without the lock, because an interrupt may take its time.
        for job in stopped:
            job.due_at = -inf
            job.context.stop()
        return stopped

    def interrupt(self) -> None:
        """Ask the code of all jobs to end, for `give_back`; threads of the host run it (rule 9.4).

        Their Spark work is canceled, and their next use of the context raises `KeyboardInterrupt`.
        """
        with self._lock:
            jobs = list(self.jobs.values())
        for job in jobs:
            job.context.interrupt()

    def give_back(self) -> None:
        """Release the jobs that have not ended, so that other executors can take them at once.

        A job whose code still runs keeps its lease: the executor that adopts it cleans up.
        """
        self.flush()
        statements: list[Statement] = []
        for job in [job for job in self.jobs.values() if not job.is_running]:
            # The clean-up may use the context.
            job.context.is_interrupted = False
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
        """Forget a job that a different executor has or none needs; an adopter keeps a resumable job's work."""
        job.is_dropped = True
        with self._guarded(job):
            if not job.operation.resumable or self._note_of(job) is not None:
                self._clean(job)
            self._forget(job)

    def _note_of(self, job: Job) -> Entry | None:
        """The note that its operation ended while this executor had it, and must clean up."""
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

    # One step

    @property
    def seconds_until_due(self) -> float:
        """Seconds until the first of its jobs may be retried; 0 without jobs."""
        soonest = min((job.due_at for job in self.jobs.values()), default=-inf)
        return max(soonest - self.manager.engine.steady(), 0.0)

    def step(self, operation: OperationId, most: int, workers: Workers = IN_TURN) -> bool:
        """Take jobs, begin the due jobs, wait for some to end, record how they ended. False if none was due or ran.

        Raises errors of the store, and `CannotExecute`; other calls may still run then.
        """
        self.watch()
        if len(self.jobs) < most:
            self.take(operation, most - len(self.jobs))
        now = self.manager.engine.steady()
        with self._lock:
            due = [job for job in self.jobs.values() if job.is_idle and job.due_at <= now]
        for batch in _batches(due, workers.n_threads - len(self._calls)):
            call = workers.submit(self.run, *batch)
            self._calls.add(call)
            for job in batch:
                job.call = call
        is_busy = bool(self._calls)
        self._calls = running_after(self._calls, workers.n_threads)
        self.flush()
        return is_busy


def _batches(jobs: Iterable[Job], n_free: int) -> list[list[Job]]:
    """Jobs of a batched operation are divided among the free workers; any other job is run alone."""
    found: dict[object, list[Job]] = {}
    for job in jobs:
        found.setdefault(job.context.operation if job.operation.batched else job.place, []).append(job)
    return [share for together in found.values() for share in _shares(together, n_free)]


def _shares(jobs: list[Job], n_free: int) -> list[list[Job]]:
    size = ceil(len(jobs) / max(n_free, 1))
    return [jobs[start : start + size] for start in range(0, len(jobs), size)]
