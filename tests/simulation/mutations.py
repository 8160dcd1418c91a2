"""The engine without one of its guards, one row each. The simulation must fail for every row."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any, NamedTuple
from unittest.mock import patch

import msgspec

from databuild_dagster.engine import engine as engine_module
from databuild_dagster.engine import tick as tick_module
from databuild_dagster.engine.set_aside import SetAside
from databuild_dagster.model import commands as c
from databuild_dagster.model import decide as decide_module
from databuild_dagster.model import events as e
from databuild_dagster.model.decide import arcs as arcs_module
from databuild_dagster.model.decide import datasets as datasets_module
from databuild_dagster.model.decide import misses as misses_module
from databuild_dagster.model.decide import same_data as same_data_module
from databuild_dagster.model.decide.context import Deciding
from databuild_dagster.model.errors import IllegalMove, Refused
from databuild_dagster.model.fold import instances as instances_module
from databuild_dagster.model.fold.folding import Folding
from databuild_dagster.model.meta_storage import both
from databuild_dagster.model.operations import invokes
from databuild_dagster.model.refs import Ref
from databuild_dagster.model.rows import InstanceRow, JobRunRow, RefRow
from databuild_dagster.model.states import (
    FAILING,
    OPEN_JOB_RUNS,
    InstanceCause,
    InstanceState,
    JobRunCause,
    JobRunState,
)
from databuild_dagster.model.view import View
from databuild_dagster.store import log
from databuild_dagster.store.backends.base import Connection
from databuild_dagster.store.backends.sqlite import SqliteDatabase
from databuild_dagster.store.unit_of_work import UnitOfWork

from .deploying import Definitions
from .processes import Scheduler
from .simulate import Failure, simulate_seed
from .stepped import Deck, SteppedStore, UnlockedStore

#: Seeds that `search` tries at most.
MOST_SEEDS = 1000


@dataclass(frozen=True)
class Mutation:
    """A guard, and the engine without it."""

    name: str
    #: Where the specification states the rule that the guard enforces.
    section: str
    #: The kinds of failure that the rule is about. A failure of another kind has another reason.
    found_as: tuple[str, ...]
    #: Entered around every simulation.
    patched: Callable[[], Any]
    store_class: type[SteppedStore] = SteppedStore
    #: The seed that failed the last time. `search` tries it first, and every other seed if it does not fail any more.
    seed: int = 0


class Found(NamedTuple):
    """A seed that fails without the guard."""

    seed: int
    failure: Failure
    #: Seeds that were tried, this one included.
    n_tried: int
    #: The failure of the same seed with the guard in its place; there must be none.
    with_guard: Failure | None


def search(mutation: Mutation) -> Found | None:
    """The first seed that fails without the guard; None if the simulation does not notice."""
    deck = Deck(mutation.store_class)
    seeds = [mutation.seed, *(seed for seed in range(MOST_SEEDS) if seed != mutation.seed)]
    try:
        for n_tried, seed in enumerate(seeds, start=1):
            with mutation.patched():
                failure = simulate_seed(seed, deck).failure
            if failure is not None:
                return Found(seed, failure, n_tried, _with_guard(seed))
    finally:
        deck.close()
    return None


def _with_guard(seed: int) -> Failure | None:
    deck = Deck()
    try:
        return simulate_seed(seed, deck).failure
    finally:
        deck.close()


@contextmanager
def _without_fencing() -> Iterator[None]:
    """Every report is taken, in any state of its job run, and the tables of moves allow it."""

    def believed(deciding: Deciding, job_run_ids: Iterable[str]) -> dict[str, JobRunRow]:
        return deciding.job_runs(job_run_ids)

    move_job_run, move_instance = Folding.move_job_run, Folding.move_instance

    def bent_job_run(folding: Folding, job_run: JobRunRow, cause: JobRunCause) -> None:
        if job_run.state not in (JobRunState.QUEUED, JobRunState.RUNNING):
            job_run.state = JobRunState.RUNNING
        move_job_run(folding, job_run, cause)

    def bent_instance(
        folding: Folding, instance: InstanceRow, cause: InstanceCause, *, retry_at: float | None = None
    ) -> None:
        try:
            move_instance(folding, instance, cause, retry_at=retry_at)
        except IllegalMove:
            instance.state = InstanceState.BUILDING
            move_instance(folding, instance, cause, retry_at=retry_at)

    with (
        patch.object(Deciding, "running_job_runs", believed),
        patch.object(Folding, "move_job_run", bent_job_run),
        patch.object(Folding, "move_instance", bent_instance),
    ):
        yield


@contextmanager
def _without_the_write_lock() -> Iterator[None]:
    """Several processes write at once. Each event takes the next seq, so that only the lock is missing."""
    decide, record = engine_module.decide, engine_module._Recording.record

    def decide_slowly(command: Any, deciding: Deciding) -> Any:
        facts = decide(command, deciding)
        for process_step in _steps:
            process_step("between its decision and its record")
        return facts

    def record_next(recording: Any, fact: e.Fact) -> None:
        recording.seq, at = log.head(recording.work.connection)
        recording.now = max(recording.now, at)
        record(recording, fact)

    step = Scheduler.step
    _steps: list[Callable[[str], None]] = []

    def remembered(scheduler: Scheduler, doing: str) -> None:
        _steps[:] = [lambda doing: step(scheduler, doing)]
        step(scheduler, doing)

    with ExitStack() as stack:
        stack.enter_context(patch.object(Scheduler, "step", remembered))
        stack.enter_context(patch.object(engine_module, "decide", decide_slowly))
        stack.enter_context(patch.object(engine_module._Recording, "record", record_next))
        yield


@contextmanager
def _without_the_standing_rule() -> Iterator[None]:
    def nothing_follows(view: View, now: float, new_id: Callable[[], str]) -> list[e.Fact]:
        view.unsettled.clear()
        return []

    with patch.object(engine_module, "follow_ups", nothing_follows):
        yield


@contextmanager
def _with_lost_wake_ups() -> Iterator[None]:
    """A dep miss waits also for refs that became live before it was folded."""
    judged = instances_module._wait

    def wait(folding: Folding, instance: InstanceRow, missing: list[RefRow], retry_at: float, *, damage: str) -> None:
        if any(row.state in FAILING for row in missing):
            judged(folding, instance, missing, retry_at, damage=damage)
            return
        instance.n_unmet = len(missing)
        folding.wait_for(instance, missing)
        folding.move_instance(instance, InstanceCause.MISSED)

    with patch.object(instances_module, "_wait", wait):
        yield


@contextmanager
def _with_torn_transactions() -> Iterator[None]:
    """A process that dies within a transaction leaves the statements that it has written."""

    def kept(database: SqliteDatabase, connection: Connection) -> None:
        if connection.in_transaction:
            connection.execute("COMMIT")

    with patch.object(SqliteDatabase, "_undo", kept):
        yield


@contextmanager
def _with_forgotten_commands() -> Iterator[None]:
    """A command that is repeated because its answer was lost acts again; each event has an id of its own."""
    events_of, event_id = log.events_of_command, log.event_command_id

    def unheard_of(connection: Connection, command_id: str) -> list[e.Event]:
        known.update({command_id: known.get(command_id, 0) + bool(events_of(connection, command_id))})
        return []

    def another_id(command_id: str, place: int) -> str:
        return event_id(command_id, place + 1000 * known.get(command_id, 0))

    known: dict[str, int] = {}
    with patch.object(log, "events_of_command", unheard_of), patch.object(log, "event_command_id", another_id):
        yield


@contextmanager
def _with_second_starters() -> Iterator[None]:
    """A launch that was ordered twice starts twice."""

    def start(command: c.StartLaunch, deciding: Deciding) -> list[e.Fact]:
        launch = deciding.view.launches([command.launch_id])[command.launch_id]
        runs = deciding.view.job_runs_of_launches([launch.id])
        ids = tuple(run.job_run_id for run in runs if run.state in OPEN_JOB_RUNS)
        if not ids:
            return []
        return [
            e.JobRunStarted(
                launch_id=command.launch_id,
                dagster_run_id=command.dagster_run_id,
                holder=command.holder,
                job_run_ids=ids,
            )
        ]

    with patch.dict(decide_module._DECISIONS, {c.StartLaunch: start}):
        yield


@contextmanager
def _without_the_second_look() -> Iterator[None]:
    """An operation is completed also when its keys have changed since they were read."""
    with (
        patch.object(invokes.m, "as_read", lambda entry: both()),
        patch.object(invokes, "is_running", lambda id: both()),
    ):
        yield


@contextmanager
def _with_arcs_that_start_over() -> Iterator[None]:
    """An arc fires from the beginning of the log, also where another process has fired it."""
    in_force = arcs_module._in_force

    def from_the_start(deciding: Deciding) -> Iterator[Any]:
        for arc in in_force(deciding):
            yield arc._replace(row=msgspec.structs.replace(arc.row, seq=0))

    with patch.object(arcs_module, "_in_force", from_the_start):
        yield


@contextmanager
def _with_lost_wakes() -> Iterator[None]:
    """The log records that an arc was woken, and not the wants that follow."""
    with patch.object(arcs_module, "_wanted", lambda *woken: []):
        yield


@contextmanager
def _without_a_look_at_what_has_come_since() -> Iterator[None]:
    """A watcher records what it saw although a faster one has recorded something newer."""
    with patch.object(datasets_module, "_check_seen", lambda *seen: None):
        yield


@contextmanager
def _without_a_guard_around_each_ref() -> Iterator[None]:
    """What raises for one ref, arc or launch ends the tick."""

    def raised(aside: SetAside, error: Exception, *names: str) -> None:
        raise error

    with patch.object(SetAside, "because_of", raised):
        yield


@contextmanager
def _without_a_look_at_what_exists() -> Iterator[None]:
    """A due ref is launched although its partition is not in the definition any longer."""
    with patch.object(Definitions, "absent", lambda definitions, dataset, partition_keys: {}):
        yield


@contextmanager
def _with_orders_that_dagster_refuses() -> Iterator[None]:
    """A launch whose asset is gone is ordered by every tick."""
    with patch.object(tick_module, "_why_no_order", lambda engine, launch: None):
        yield


@contextmanager
def _without_patience_for_deploys() -> Iterator[None]:
    """A dep miss of what a deploy has removed fails its ref for good."""

    def why_never(ref: Ref, needed_by: Ref, deciding: Deciding, may_come: Callable[[Ref], bool]) -> str | None:
        try:
            deciding.check_wantable(ref)
        except Refused as refused:
            return refused.message
        return None

    with patch.object(misses_module, "_why_never", why_never):
        yield


@contextmanager
def _with_equal_rows_under_taints() -> Iterator[None]:
    """Rows equal those of before, whichever downstream taint covers them."""
    same = same_data_module._same

    def untainted(output: Any, last: InstanceRow | None, deciding: Deciding) -> str | None:
        seen = None if last is None else msgspec.structs.replace(last, n_spreading=0)
        return same(msgspec.structs.replace(output, inputs={}), seen, deciding)

    with patch.object(same_data_module, "_same", untainted):
        yield


@contextmanager
def _with_taints_that_know_no_equal_rows() -> Iterator[None]:
    """A downstream taint stops where rows were built again equally."""
    with patch.object(UnitOfWork, "instances_same_as", lambda work, ids: list(ids)):
        yield


MUTATIONS = (
    Mutation(
        "fencing is switched off",
        "6.9",
        ("late report taken", "ended twice", "success without lease"),
        _without_fencing,
        seed=7,
    ),
    Mutation(
        "the write lock is switched off",
        "3.3, 8.4",
        ("two leases", "IllegalMove", "I1", "I2", "IntegrityError"),
        _without_the_write_lock,
        UnlockedStore,
        seed=4,
    ),
    Mutation("the standing rule is switched off", "6.4", ("rule 6.4", "I11"), _without_the_standing_rule),
    Mutation(
        "lost wake-ups are put back", "6.5", ("I3", "I11", "IllegalMove", "explain"), _with_lost_wake_ups, seed=40
    ),
    Mutation(
        "transactions are torn",
        "3.3",
        (
            "I5",
            "I11",
            "two leases",
            "ended twice",
            "IllegalMove",
            "IntegrityError",
            "lost command",
            "late report taken",
            # A taint whose instances were not written.
            "rule 7.1",
        ),
        _with_torn_transactions,
        seed=1,
    ),
    Mutation("repeated commands act again", "3.3", ("acted twice",), _with_forgotten_commands),
    Mutation(
        "invokes of operations do not look again",
        "9.3, 9.5, 9.6",
        ("stale mark taken", "completion", "I9", "I11", "lost work", "left behind", "acted twice"),
        _without_the_second_look,
        seed=14,
    ),
    Mutation("second starters are let in", "6.9", ("started twice", "IllegalMove"), _with_second_starters),
    Mutation("arcs start over", "10.5", ("arc", "IntegrityError"), _with_arcs_that_start_over, seed=18),
    Mutation("wakes are lost", "10.5", ("arc",), _with_lost_wakes),
    Mutation("a tick has no guard around each ref", "11.5", ("tick",), _without_a_guard_around_each_ref, seed=10),
    Mutation("what exists is not looked at", "11.5", ("explain", "I11"), _without_a_look_at_what_exists, seed=1),
    Mutation(
        "orders that Dagster refuses are repeated",
        "11.5",
        ("I11", "explain"),
        _with_orders_that_dagster_refuses,
        seed=219,
    ),
    Mutation("dep misses know no deploys", "6.3", ("rule 6.3",), _without_patience_for_deploys, seed=41),
    Mutation("tainted rows equal those of before", "4.8", ("rule 4.8",), _with_equal_rows_under_taints, seed=11),
    Mutation("downstream taints know no equal rows", "7.3", ("taint",), _with_taints_that_know_no_equal_rows, seed=317),
    Mutation("slow watchers are believed", "10.6", ("arrival",), _without_a_look_at_what_has_come_since, seed=238),
)


def named(name: str) -> Mutation:
    return next(mutation for mutation in MUTATIONS if mutation.name == name)
