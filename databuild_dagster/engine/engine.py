"""Every change goes through `Engine.handle`: a command becomes events and state in a transaction, or is refused (rule 3.3)."""

import time
from collections.abc import Callable, Hashable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from threading import RLock
from typing import Any, TypeVar, cast

from databuild_dagster.engine.holders import new_id
from databuild_dagster.engine.log_time import LogTime, StoreClock
from databuild_dagster.model import events as e
from databuild_dagster.model.command_ids import CONTINUATION, is_possible
from databuild_dagster.model.commands import Command
from databuild_dagster.model.datasets import Catalog, DatasetSpec
from databuild_dagster.model.decide import Deciding, decide
from databuild_dagster.model.decide.context import CatalogAnswers, Claim, answered
from databuild_dagster.model.errors import IllegalMove, InvalidRequest
from databuild_dagster.model.fold.demands import DERIVATIVE
from databuild_dagster.model.fold.evolve import fold
from databuild_dagster.model.fold.standing import follow_ups
from databuild_dagster.model.refs import Ref
from databuild_dagster.model.wording import utf8
from databuild_dagster.store import log
from databuild_dagster.store.backends.heartbeats import Heartbeats
from databuild_dagster.store.ledger import Ledger
from databuild_dagster.store.log import Mark
from databuild_dagster.store.places import Places
from databuild_dagster.store.queries.queries import Change, Queries
from databuild_dagster.store.store import Store, again_if_cut
from databuild_dagster.store.unit_of_work import UnitOfWork

#: Longest chain of derivative wants after a command.
MAX_FOLLOW_UPS = 10_000

T = TypeVar("T")


@dataclass(frozen=True)
class Outcome:
    """The result of a command; a repeated command id returns the first result."""

    events: tuple[e.Event, ...]
    #: True when the command id was known and nothing was recorded now.
    repeated: bool = False
    #: The grant of a Dagster run; only for `ClaimRefs`, and only the first time.
    claim: Claim | None = None

    @property
    def request_id(self) -> str | None:
        """The request of the wants that were recorded."""
        return next((event.fact.request_id for event in self.events if isinstance(event.fact, e.WantCreated)), None)

    @property
    def want_ids(self) -> tuple[str, ...]:
        """The created wants, without derivative wants."""
        created = [event.fact for event in self.events if isinstance(event.fact, e.WantCreated)]
        return tuple(want.id for fact in created if fact.source != DERIVATIVE for want in fact.wants)

    @property
    def canceled_want_ids(self) -> tuple[str, ...]:
        """The wants that the command canceled, without the wants that nothing needs any longer."""
        fact = self.events[0].fact
        return fact.want_ids if isinstance(fact, e.WantCanceled) else ()

    @property
    def job_run_ids(self) -> tuple[str, ...]:
        """The buffered job runs or, for a start, the running job runs."""
        ids: dict[str, None] = {}
        for event in self.events:
            match event.fact:
                case e.JobRunBuffered(runs=runs):
                    ids.update(dict.fromkeys(run.job_run_id for run in runs))
                case e.JobRunStarted(job_run_ids=started):
                    ids.update(dict.fromkeys(started))
        return tuple(ids)

    @property
    def canceled(self) -> tuple[str, ...]:
        """The job runs that were canceled."""
        events = (event.fact for event in self.events)
        return tuple(id for fact in events if isinstance(fact, e.JobRunCanceled) for id in fact.job_run_ids)

    @property
    def resumed(self) -> tuple[Ref, ...]:
        """The names whose pauses ended."""
        events = (event.fact for event in self.events)
        return tuple(ref for fact in events if isinstance(fact, e.PartitionsResumed) for ref in fact.refs)

    @property
    def taint_id(self) -> str | None:
        """The taint that was recorded."""
        return next((event.fact.taint_id for event in self.events if isinstance(event.fact, e.TaintCreated)), None)


@dataclass(frozen=True)
class Preview:
    """The result that a command would have."""

    outcome: Outcome
    changes: list[Change]
    #: The refs whose canonical instance would have the command's taint.
    tainted: tuple[Ref, ...]


class Engine:
    """Commands in, events and state out, over a store. Thread-safe."""

    def __init__(
        self,
        store: Store,
        catalog: Catalog,
        *,
        heartbeats: Heartbeats | None = None,
        clock: Callable[[], float] | None = None,
        steady: Callable[[], float] = time.monotonic,
        new_id: Callable[[], str] = new_id,
    ) -> None:
        self.store = store
        self.catalog = catalog
        self.heartbeats = heartbeats or Heartbeats(store.database)
        #: The clock of the log's server, or this machine's (`store_clock`). Decisions of the log use `now`.
        self.clock = clock or StoreClock(self.heartbeats, store.url)
        #: A clock that is never set, for durations.
        self.steady = steady
        self.new_id = new_id
        self.queries = Queries(store)
        self.ledger = Ledger(store)
        self.memory = ProcessMemory()
        self._log_time = LogTime(self.heartbeats, self.queries.events)
        #: Registrations of earlier decisions, which may have changed since.
        self._registered: dict[str, DatasetSpec | None] = {}

    def handle(self, command: Command, *, command_id: str | None = None, actor: str = "databuild") -> Outcome:
        """Handle a command. Raises a subclass of `Refused`, with nothing recorded.

        A `command_id` that was handled before returns its first outcome and changes nothing. An id with a fingerprint raises
        `CommandIdUsed` if the id was handled with a different fingerprint.
        """
        if command_id is not None and not is_possible(command_id):
            why = f"it must be a text without {CONTINUATION!r} and NUL"
            raise InvalidRequest(what="command_id", value=command_id, why=why)
        if "\0" in actor:
            raise InvalidRequest(what="actor", value=actor, why="it must be a text without NUL")
        actor, named = utf8(actor), None if command_id is None else utf8(command_id)
        recorded_id = named or self.new_id()
        #: Outcomes whose transactions did not end as far as this process knows.
        pending: list[Outcome] = []

        @again_if_cut
        def attempt(answers: CatalogAnswers) -> Outcome:
            with self.store.writing() as work:
                if (named or pending) and (before := log.events_of_command(work.connection, recorded_id)):
                    mine = [outcome for outcome in pending if outcome.events == tuple(before)]
                    return mine[0] if mine else Outcome(tuple(before), repeated=True)
                outcome = self._handled(work, command, recorded_id, actor, answers)
                pending.append(outcome)
                return outcome

        return self._with_answers(command, attempt)

    def preview(self, command: Command, *, actor: str = "databuild") -> Preview:
        """Handle a command and roll it back. Raises what `handle` raises.

        Holds the write lock as long as the command takes, and leaves no trace.
        """
        found: list[Preview] = []

        def attempt(answers: CatalogAnswers) -> None:
            with suppress(_TakenBack), self.store.writing() as work:
                outcome = self._handled(work, command, self.new_id(), actor, answers)
                moves = work.moves
                work.flush()
                tainted = self.queries.instances.tainted_by(outcome.taint_id) if outcome.taint_id is not None else ()
                found.append(Preview(outcome, self.queries.events.named_changes(moves), tainted))
                raise _TakenBack

        self._with_answers(command, attempt)
        return found[0]

    def _with_answers(self, command: Command, attempt: Callable[[CatalogAnswers], T]) -> T:
        """An attempt after the catalog was asked: no transaction waits for Dagster."""
        answers = CatalogAnswers()
        answers.ask_ahead(self.catalog, command, self._registered)
        return answered(self.catalog, answers, attempt)

    def _handled(
        self, work: UnitOfWork, command: Command, command_id: str, actor: str, answers: CatalogAnswers
    ) -> Outcome:
        head = work.head
        now = self._now(head)
        work.seq = head.seq
        deciding = Deciding(work, now, self.new_id, answers)
        recording = _Recording(work, self.store.places, now, command_id, actor)
        facts = decide(command, deciding)
        self._registered.update(deciding.registered)
        for _ in range(MAX_FOLLOW_UPS):
            for fact in facts:
                recording.record(fact)
            facts = follow_ups(work, now, self.new_id)
            if not facts:
                return Outcome(tuple(recording.events), claim=deciding.claim)
        raise IllegalMove(
            seq=head.seq, entity=type(command).__name__, on="follow-ups", why=f"more than {MAX_FOLLOW_UPS}"
        )

    def now(self, head: log.Head | None = None) -> float:
        """The time of a command that is handled now (`log_time`). `head` is the log's end, if the caller has it."""
        return self._now(head or self.queries.events.head())

    def note_time(self, now: float) -> None:
        """Note the log's time for processes that begin later, if the clock is behind."""
        self._log_time.note(now)

    def _now(self, head: log.Head) -> float:
        return self._log_time.now(head.at, self.clock(), self.steady())

    def beat(self, launch_ids: Iterable[str]) -> None:
        """Record heartbeats of launches. Never waits for the log (rule 6.9)."""
        self.heartbeats.beat(launch_ids, self.clock())


class _TakenBack(Exception):
    """Ends the transaction of a preview."""


class _Recording:
    """The events of a command as they are appended and folded."""

    def __init__(self, work: UnitOfWork, places: Places, now: float, command_id: str, actor: str) -> None:
        self.work = work
        self.places = places
        self.seq = work.head.seq
        self.now = now
        self.command_id = command_id
        self.actor = actor
        self.events: list[e.Event] = []

    def record(self, fact: e.Fact) -> None:
        place = len(self.events)
        self.seq += 1
        event = e.Event(
            self.seq, self.now, self.places.fact(fact), log.event_command_id(self.command_id, place), self.actor
        )
        event = log.append(self.work.connection, event)
        self.work.appended = Mark(event.seq, event.command_id)
        fold(self.work, event)
        self.events.append(event)


class ProcessMemory:
    """The cache of an engine in a process: values by the module or the name that stores them. Thread-safe.

    It can be lost at any time: every value can be read again.
    """

    def __init__(self) -> None:
        self._kept: dict[Hashable, Any] = {}
        self._lock = RLock()

    def of(self, key: Hashable, make: Callable[[], T]) -> T:
        """The value under a key, made at the first call."""
        with self._lock:
            if key not in self._kept:
                self._kept[key] = make()
            return cast(T, self._kept[key])

    def put(self, key: Hashable, value: object) -> None:
        self._kept[key] = value

    def forget(self) -> None:
        """Drop everything."""
        self._kept.clear()
