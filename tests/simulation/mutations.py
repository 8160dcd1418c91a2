"""The engine with one of its guards taken out: what the simulation must find, or it finds nothing."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any
from unittest.mock import patch

import msgspec

from databuild_dagster.engine import engine as engine_module
from databuild_dagster.model import commands as c
from databuild_dagster.model import decide as decide_module
from databuild_dagster.model import events as e
from databuild_dagster.model import evolve as evolve_module
from databuild_dagster.model import operations
from databuild_dagster.model.decide import arcs as arcs_module
from databuild_dagster.model.decide import datasets as datasets_module
from databuild_dagster.model.decide.context import Deciding
from databuild_dagster.model.errors import IllegalMove
from databuild_dagster.model.folding import Folding
from databuild_dagster.model.meta_storage import both, not_exists
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
from databuild_dagster.store.database import Connection
from databuild_dagster.store.sqlite import SqliteDatabase

from .processes import Scheduler
from .stepped import SteppedStore, UnlockedStore


@dataclass(frozen=True)
class Mutation:
    """A guard, and how to work without it."""

    name: str
    #: Where the guard stands in the specification.
    section: str
    #: The kinds of failure that it must show as: another one would be found for a wrong reason.
    found_as: tuple[str, ...]
    #: Entered around every simulation.
    patched: Callable[[], Any]
    store_class: type[SteppedStore] = SteppedStore


@contextmanager
def _without_fencing() -> Iterator[None]:
    """Whoever reports is believed, and the tables of moves are bent to it."""

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
    """Everybody may write at once; each event takes whatever seq is next, so that nothing but the lock is missed."""
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
    """A dep miss is folded as it was found, whatever has become live since."""
    judged = evolve_module._wait

    def wait(folding: Folding, instance: InstanceRow, ref: RefRow, missing: list[RefRow], retry_at: float) -> None:
        if any(row.state in FAILING for row in missing):
            judged(folding, instance, ref, missing, retry_at)
            return
        instance.n_unmet = len(missing)
        folding.wait_for(instance, missing)
        folding.move_instance(instance, InstanceCause.MISSED)

    with patch.object(evolve_module, "_wait", wait):
        yield


@contextmanager
def _with_torn_transactions() -> Iterator[None]:
    """What a process had written when it died stays written."""

    def kept(database: SqliteDatabase, connection: Connection) -> None:
        if connection.in_transaction:
            connection.execute("COMMIT")

    with patch.object(SqliteDatabase, "_undo", kept):
        yield


@contextmanager
def _with_forgotten_commands() -> Iterator[None]:
    """Who repeats a command because its answer was lost does it again; each event has an id of its own all the same."""
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
    """An order that was delivered twice is executed twice."""

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
def _without_fence_tokens() -> Iterator[None]:
    """Whoever says how a job of a running operation ended is believed first."""

    def anybodys(id: operations.OperationId, partition: str, lease: operations.Lease) -> Any:
        return both(operations.is_running(id), not_exists(id.job(partition).state))

    with patch.object(operations, "is_mine", anybodys):
        yield


@contextmanager
def _without_the_second_look() -> Iterator[None]:
    """An operation is completed whatever has become of it since its keys were read."""
    with (
        patch.object(operations, "as_read", lambda entry: both()),
        patch.object(operations, "is_running", lambda id: both()),
    ):
        yield


@contextmanager
def _with_arcs_that_start_over() -> Iterator[None]:
    """Where an arc stands is not asked: who followed the log at the same time fires it once more."""
    in_force = arcs_module._in_force

    def from_the_start(deciding: Deciding) -> Iterator[Any]:
        for arc in in_force(deciding):
            yield arc._replace(row=msgspec.structs.replace(arc.row, seq=0))

    with patch.object(arcs_module, "_in_force", from_the_start):
        yield


@contextmanager
def _with_lost_wakes() -> Iterator[None]:
    """That an arc was woken is recorded, and what it wanted for that is not."""
    with patch.object(arcs_module, "_wanted", lambda *woken: []):
        yield


@contextmanager
def _without_a_look_at_what_has_come_since() -> Iterator[None]:
    """Of two watchers, the slower one records what it saw before the faster one did."""
    with patch.object(datasets_module, "_check_seen", lambda *seen: None):
        yield


MUTATIONS = (
    Mutation(
        "fencing is switched off",
        "6.9",
        ("late report taken", "ended twice", "success without lease"),
        _without_fencing,
    ),
    Mutation(
        "the write lock is switched off",
        "3.3, 8.4",
        ("two leases", "IllegalMove", "I1", "I2", "IntegrityError"),
        _without_the_write_lock,
        UnlockedStore,
    ),
    Mutation("the standing rule is switched off", "6.4", ("SPEC 6.4", "I11"), _without_the_standing_rule),
    Mutation("lost wake-ups are put back", "6.5", ("I3", "I11", "IllegalMove"), _with_lost_wake_ups),
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
        ),
        _with_torn_transactions,
    ),
    Mutation("repeated commands act again", "3.3", ("acted twice",), _with_forgotten_commands),
    Mutation("fence tokens of operations are not looked at", "9.5", ("stale mark taken",), _without_fence_tokens),
    Mutation(
        "invokes of operations do not look again",
        "9.3, 9.5, 9.6",
        ("stale mark taken", "completion", "I9", "I11", "lost work", "left behind", "acted twice"),
        _without_the_second_look,
    ),
    Mutation("second starters are let in", "6.9", ("started twice", "IllegalMove"), _with_second_starters),
    Mutation("arcs start over", "10.5", ("arc", "IntegrityError"), _with_arcs_that_start_over),
    Mutation("wakes are lost", "10.5", ("arc",), _with_lost_wakes),
    Mutation("slow watchers are believed", "10.6", ("arrival",), _without_a_look_at_what_has_come_since),
)


def named(name: str) -> Mutation:
    return next(mutation for mutation in MUTATIONS if mutation.name == name)
