"""The coordinator completes operations whose jobs have ended, starts what follows, and cleans up after gone executors (rule 9.6).

Any orchestrator may be it, by a lease for each dataset. Several at once do no harm: a single invoke at the end decides.
"""

from collections.abc import Iterable
from math import inf
from typing import Any, NamedTuple

import msgspec

from databuild_dagster.engine.holders import this_process
from databuild_dagster.engine.judge import Judge
from databuild_dagster.features.operations import follow_ups
from databuild_dagster.features.operations.executor import Executor
from databuild_dagster.features.operations.job import MAX_ERROR, ContextFactory, JobContext, backoff_seconds, clean_up
from databuild_dagster.features.operations.manager import MAX_RACES, DistributedOperationManager
from databuild_dagster.features.operations.tracker import Tracked, Tracker, gone_of
from databuild_dagster.model import errors
from databuild_dagster.model.meta_storage import LAST, Entry, Remove, as_read, do, iif
from databuild_dagster.model.operations import invokes, keys, records
from databuild_dagster.model.operations.keys import DatasetKeys, OperationId
from databuild_dagster.model.operations.records import Lease, Trouble, Unclean
from databuild_dagster.model.operations.states import OperationState
from databuild_dagster.model.wording import one_line
from databuild_dagster.store.errors import StoreUnusable

#: Notes of unclean jobs in a pass.
MAX_CLEANED = 100
#: Jobs of gone executors that a pass releases.
MAX_RELEASED = 1_000
#: Revisions between two compactions.
COMPACT_EVERY = 20_000


class Coordination(NamedTuple):
    """The results of a pass."""

    completed: dict[OperationId, OperationState]
    #: Operation to why it cannot continue here; canceling always works.
    problems: dict[OperationId, str]
    #: Operation to the number of its jobs without an executor.
    waiting: dict[OperationId, int]
    cleaned: int
    #: Operation to why its completion, which raised, is not tried in this pass.
    backing_off: dict[OperationId, str]
    #: Jobs of ended operations that still need a clean-up.
    unclean: int = 0
    #: Follow-ups that wait for a process with the code of their type.
    unstarted: int = 0


class Coordinator:
    """Each process has one, called in every tick; remembers its last look, so that a pass costs as much as has changed."""

    def __init__(
        self,
        manager: DistributedOperationManager,
        *,
        judge: Judge | None = None,
        holder: str | None = None,
        contexts: ContextFactory = JobContext,
    ) -> None:
        self.manager = manager
        self.meta = manager.meta
        self.judge = judge or Judge()
        self.holder = holder or this_process()
        self.id = manager.engine.new_id()
        self.tracker = Tracker(self.meta)
        #: For completion code that raised: the number of attempts, and the time of the next.
        self._backoff: dict[OperationId, tuple[int, float]] = {}
        #: The key at which the next pass continues among the notes of unclean jobs.
        self._clean_from = ""
        self._cleans = Executor(
            manager, judge=self.judge, holder=self.holder, extras=manager.resources, contexts=contexts
        )

    def coordinate(self) -> Coordination:
        """Run a bounded pass; a single question if nothing has changed."""
        self.judge.look(self.manager.engine.steady())
        self.tracker.look()
        done = Coordination({}, {}, {}, 0, {})
        running = self.tracker.operations
        if running:
            self.manager.engine.beat([self.id])
        for tracked in running:
            self._see_to(tracked, done)
        # Last, so that the follow-ups of an operation that ended in this pass start in it.
        return self._see_to_notes(done)

    def _see_to(self, tracked: Tracked, done: Coordination) -> None:
        id = tracked.id
        if problem := tracked.unreadable or self.manager.problem_of(id, tracked.arg):
            done.problems[id] = problem
            return
        if not tracked.is_complete:
            if n_waiting := self.n_waiting(tracked):
                done.waiting[id] = n_waiting
            return
        before = 0 if tracked.trouble is None else tracked.trouble.attempts
        attempts, due_at = self._backoff.get(id, (before, -inf))
        if self.manager.engine.steady() < due_at:
            if tracked.trouble is not None:
                done.backing_off[id] = tracked.trouble.error
            return
        try:
            if not self._leads(id.dataset):
                return
        except msgspec.MsgspecError as error:
            done.problems[id] = f"the coordinator's lease of {id.dataset} cannot be read: {one_line(error)}"
            return
        try:
            outcome = self.complete(id)
        except StoreUnusable:
            raise
        except Exception as error:
            attempts += 1
            wait = backoff_seconds(attempts)
            self._backoff[id] = attempts, self.manager.engine.steady() + wait
            why = f"its completion raised {type(error).__name__}: {one_line(error)}"[:MAX_ERROR]
            done.problems[id] = why
            # Others read why, and the next coordinator continues the count.
            now = self.manager.engine.now()
            self.meta.invoke_all([invokes.note_completion_trouble(id, Trouble(why, attempts, now, now + wait))])
        else:
            self._backoff.pop(id, None)
            if outcome is not None:
                done.completed[id] = outcome

    def n_waiting(self, tracked: Tracked) -> int:
        """The number of jobs without an executor: as many executors may be started.

        Jobs of gone executors are released first, so that the next executor takes them at once.
        """
        taken = {partition: job for partition, job in tracked.taken.items() if not job.lease.released}
        gone = gone_of((job.lease for job in taken.values()), self.manager, self.judge)
        lost = [partition for partition, job in taken.items() if job.lease.executor in gone][:MAX_RELEASED]
        if lost:
            self.meta.invoke_all([invokes.release(tracked.id, partition, taken[partition].value) for partition in lost])
        return len(tracked.free) + len(tracked.taken) - len(taken) + len(lost)

    # The lease

    def _leads(self, dataset: str) -> bool:
        """Whether this is the coordinator of a dataset; it takes over from a coordinator that is gone."""
        before = self.tracker.coordinators.get(dataset)
        if before is not None:
            lease = records.lease_of(before)
            if lease.executor == self.id:
                return True
            if not gone_of([lease], self.manager, self.judge):
                return False
        mine = Lease(self.manager.engine.new_id(), self.id, self.holder, self.manager.engine.clock())
        if not self.meta.invoke_all([invokes.lead(dataset, before, mine)]).value:
            return False
        self.tracker.coordinators[dataset] = records.to_bytes(mine)
        return True

    # Completing

    def complete(self, id: OperationId) -> OperationState | None:
        """Read again, run the completion code, then invoke once; repeat if the invoke was not applied (rule 9.6).

        None if it has ended already. Raises errors of the completion code; the operation then stays running.
        """
        for _ in range(MAX_RACES):
            run_ops = self.meta.get(DatasetKeys.of(id.dataset).run_ops)
            seen = self.manager.read(id)
            if not seen.is_running:
                return None
            completion = seen.completion()
            if completion.cause is None:
                return None
            operation = self.manager.type_named(id.type)
            arg = self.manager.arg_for(id, seen.values[id.arg] or b"")
            asked: list[tuple[str, str, Any]] = []
            with_resources = completion._replace(resources=self.manager.resources, follow_ups=asked)
            report = operation.complete_operation(arg, id.dataset, with_resources)
            outcomes, starts, intents = follow_ups.prepared(self.manager, id, run_ops, asked)
            now = self.manager.engine.now()
            ended = seen.ended(completion.cause, now, report=report, follow_ups=outcomes)
            # Read late, because executors may take jobs during the completion code of a failure.
            unended = {} if completion.success else self.manager.read(id).unended()
            statements = invokes.finish(id, run_ops, ended, unended, starts, intents)
            if self.meta.invoke_all(statements).values[-1]:
                self._compact()
                return ended.outcome
        raise errors.OperationRace(type_name=id.type, dataset=id.dataset)

    def _compact(self) -> None:
        head = self.manager.engine.queries.events.head().seq
        if head - self.meta.compacted() > COMPACT_EVERY:
            self.meta.compact()

    # After the end

    def _see_to_notes(self, done: Coordination) -> Coordination:
        """Start follow-ups, and clean up after jobs, of operations that have ended."""
        first, end = keys.FOLLOW_UP + keys.SEPARATOR, keys.UNCLEAN + keys.SEPARATOR + LAST
        notes = self.meta.range(max(first, self._clean_from), end, limit=MAX_CLEANED).entries
        # The next pass continues here, so that jobs without a clean-up do not hide the others.
        self._clean_from = notes[-1].key + LAST if len(notes) == MAX_CLEANED else ""
        intents = [entry for entry in notes if entry.key.startswith(first)]
        n_started = sum(self._start(entry) for entry in intents)
        n_unclean = len(notes) - len(intents)
        n_cleaned = self._clean_up(notes[len(intents) :]) if n_unclean else 0
        return done._replace(cleaned=n_cleaned, unclean=n_unclean - n_cleaned, unstarted=len(intents) - n_started)

    def _start(self, intent: Entry) -> bool:
        try:
            return follow_ups.start_intended(self.manager, intent)
        except StoreUnusable:
            raise
        except Exception:
            # It stays noted, for the next pass or for newer code.
            return False

    def _clean_up(self, notes: Iterable[Entry]) -> int:
        """Clean up after jobs whose executor is gone; a living executor cleans up itself. Returns their number."""
        found = {entry: note for entry in notes if (note := _note_of(entry)) is not None}
        gone = gone_of([note.lease for note in found.values()], self.manager, self.judge)
        n_cleaned = 0
        for entry, note in found.items():
            if not (note.lease.released or note.lease.executor in gone):
                continue
            try:
                is_cleaned = self._clean_one(entry.key, note)
            except StoreUnusable:
                raise
            except Exception:
                # It stays noted, for the next pass or for newer code.
                continue
            if is_cleaned:
                self.meta.invoke_all([iif(as_read(entry), do(Remove(entry.key), yields=True))])
                n_cleaned += 1
        return n_cleaned

    def _clean_one(self, key: str, note: Unclean) -> bool:
        """Clean up after a job; False without the code of its type. Raises errors of reading and of the clean-up."""
        name, _, partition = key.removeprefix(keys.UNCLEAN + keys.SEPARATOR).rpartition(keys.SEPARATOR)
        id = OperationId.parse(name)
        if id.type not in self.manager.types:
            return False
        ended = records.ended_of(id, self.meta.get(id.history).value or b"")
        arg = self.manager.arg_for(id, records.to_bytes(ended.arg))
        context = self._cleans.contexts(self._cleans, id, keys.unescape(partition), note.lease, note.instance)
        context.is_stopped = True
        tokens = (*note.lease.adopted_from, note.lease.token)
        clean_up(self._cleans, self.manager.types[id.type], arg, context, tokens)
        return True


def _note_of(entry: Entry) -> Unclean | None:
    """None for a note of newer code, which stays for that."""
    try:
        return records.unclean_of(entry.value or b"")
    except msgspec.MsgspecError:
        return None
