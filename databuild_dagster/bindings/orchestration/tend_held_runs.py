"""The tick's duty towards Dagster runs that are held: answer, release, time out or repair each, and hold queued ones.

A queued run is held as soon as others answer all that it asks for. Of several ticks at once one does the duty.
"""

import logging
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from threading import Lock

from dagster import (
    DagsterEvent,
    DagsterInstance,
    DagsterRun,
    DagsterRunStatus,
    RunRecord,
    RunsFilter,
)

from databuild_dagster.bindings.adapter.run_tags import HELD, HOLD_TAG, LAUNCH_TAG, RELEASED
from databuild_dagster.bindings.claims import run_messages
from databuild_dagster.bindings.claims.queued_request import Request, answers_by, request_of
from databuild_dagster.bindings.orchestration.coordinator import DatabuildRunCoordinator
from databuild_dagster.bindings.orchestration.finish_run import say
from databuild_dagster.bindings.orchestration.held_runs import answer, end, release, see_off, standing_of
from databuild_dagster.bindings.registry.instance import engine_for
from databuild_dagster.engine.engine import Engine
from databuild_dagster.model.coordination import Answer
from databuild_dagster.model.refs import Ref

#: Held runs that one tick looks after, and queued ones, the oldest first.
MAX_HELD_PER_TICK = 500
#: So long a run belongs to the process in which it was submitted; what is left undone then was left by a crash.
SUBMITTING_SECONDS = 60.0

#: Queued runs of which is remembered what they ask for.
MAX_REMEMBERED = 5_000

_log = logging.getLogger(__name__)
_one_tick_at_a_time = Lock()


def look_after(instance: DagsterInstance, *, location: str, delegation_timeout_seconds: float) -> None:
    """See to every held run, and hold those queued that others answer by now; what fails is logged, and left to later.

    Of several ticks at once one does it. The timeout is for what `location` builds.
    """
    coordinator = instance.run_coordinator
    if not isinstance(coordinator, DatabuildRunCoordinator):
        return
    wearing = RunsFilter(tags={HOLD_TAG: HELD})
    held = [each.run_id for each in instance.get_runs(filters=wearing, limit=MAX_HELD_PER_TICK, ascending=True)]
    queued = _not_held_yet(instance) if coordinator.holds() else []
    if not held and not queued:
        return
    engine = engine_for(instance)
    with _alone(engine) as alone:
        if not alone:
            return
        for run_id in held:
            with _left_to_later(run_id):
                _see_to(instance, engine, run_id, location, delegation_timeout_seconds)
        for run_id in _answerable(instance, engine, queued):
            with _left_to_later(run_id):
                _hold_queued(instance, engine, run_id)


@contextmanager
def _left_to_later(run_id: str) -> Iterator[None]:
    try:
        yield
    except Exception:
        _log.exception("databuild: Dagster run %s is left to a later tick", run_id)


# Queued before anybody built what they ask for


def _not_held_yet(instance: DagsterInstance) -> list[DagsterRun]:
    """Runs in the queue that were to build something when they were submitted."""
    queued = RunsFilter(statuses=[DagsterRunStatus.QUEUED])
    runs = instance.get_runs(filters=queued, limit=MAX_HELD_PER_TICK, ascending=True)
    # A re-execution wears the tags of the run before it, and may wear `over`.
    return [run for run in runs if LAUNCH_TAG not in run.tags and run.tags.get(HOLD_TAG) not in (HELD, RELEASED)]


def _answerable(instance: DagsterInstance, engine: Engine, runs: Sequence[DagsterRun]) -> list[str]:
    """Those that others answer by now, from one look at the store; what a run asks for is found out once."""
    asked: dict[str, Request | None] = engine.memory.of(Request, dict)
    for run in runs:
        if run.run_id not in asked:
            if len(asked) >= MAX_REMEMBERED:
                asked.clear()
            asked[run.run_id] = None
            with _left_to_later(run.run_id):
                asked[run.run_id] = request_of(instance, engine, run)
    requests = {run.run_id: request for run in runs if (request := asked.get(run.run_id)) is not None}
    if not requests:
        return []
    states = engine.queries.states({ref for request in requests.values() for ref in request.refs})
    return [run_id for run_id, request in requests.items() if Answer.BUILD not in answers_by(states, request).values()]


def _hold_queued(instance: DagsterInstance, engine: Engine, run_id: str) -> None:
    """As if it was submitted now; unless the daemon has just started it."""
    instance.add_run_tags(run_id, {HOLD_TAG: HELD})
    run = instance.get_run_by_id(run_id)
    if (
        run is None
        or run.status is not DagsterRunStatus.QUEUED
        or (request := request_of(instance, engine, run)) is None
    ):
        release(instance, run_id)
        return
    answer(instance, engine, request)


# Held


@contextmanager
def _alone(engine: Engine) -> Iterator[bool]:
    """Whether nobody else looks after held runs now, in this process or in another one on this machine."""
    if not _one_tick_at_a_time.acquire(blocking=False):
        yield False
        return
    try:
        with engine.store.database.alone("holding") as alone:
            yield alone
    finally:
        _one_tick_at_a_time.release()


def _see_to(instance: DagsterInstance, engine: Engine, run_id: str, location: str, timeout_seconds: float) -> None:
    record = instance.get_run_record_by_id(run_id)
    if record is None or record.dagster_run.tags.get(HOLD_TAG) != HELD:
        return
    run = record.dagster_run
    status = run.status
    if run.is_finished:
        # Canceled by a person, for instance.
        see_off(instance, engine, run_id, f"its Dagster run ended: {status.value}")
    elif status is DagsterRunStatus.QUEUED:
        _go_on(instance, engine, record, location, timeout_seconds)
    elif status in (DagsterRunStatus.NOT_STARTED, DagsterRunStatus.STARTED) and not _was_launched(instance, run_id):
        if engine.clock() - record.update_timestamp.timestamp() > SUBMITTING_SECONDS:
            _repair(instance, engine, run)
    elif status in (DagsterRunStatus.STARTING, DagsterRunStatus.STARTED):
        # The daemon was told other limits than ours; the guard in the step decides.
        release(instance, run_id)


def _was_launched(instance: DagsterInstance, run_id: str) -> bool:
    """Whether a process was started for it: what is answered here never was."""
    return instance.get_run_stats(run_id).launch_time is not None


def _go_on(instance: DagsterInstance, engine: Engine, record: RunRecord, location: str, timeout_seconds: float) -> None:
    """A held run in the queue: answered, released, timed out, or held on."""
    run = record.dagster_run
    request = request_of(instance, engine, run)
    if request is None:
        release(instance, run.run_id)
        return
    standing = standing_of(engine, request)
    if not standing.is_recorded:
        # A crash came between.
        answer(instance, engine, request)
    elif standing.free:
        say(instance, run, run_messages.given_up_elsewhere(standing.free))
        release(instance, run.run_id)
    elif not standing.waiting:
        end(instance, engine, request, standing)
    elif any(each.location == location for each in request.datasets.values()):
        waited = engine.clock() - record.create_timestamp.timestamp()
        if waited > timeout_seconds:
            _time_out(instance, engine, run, standing.waiting, timeout_seconds)


def _repair(instance: DagsterInstance, engine: Engine, run: DagsterRun) -> None:
    """Whoever submitted it is gone: what was not done is done now, or by the next tick."""
    if run.status is DagsterRunStatus.NOT_STARTED:
        instance.report_dagster_event(DagsterEvent.job_enqueue(run), run.run_id)
    elif (request := request_of(instance, engine, run)) is not None:
        # It was all live when it was started; only its end was not told.
        end(instance, engine, request, standing_of(engine, request))


def _time_out(
    instance: DagsterInstance,
    engine: Engine,
    run: DagsterRun,
    waiting: Mapping[Ref, str | None],
    timeout_seconds: float,
) -> None:
    message = run_messages.stalled(waiting, timeout_seconds)
    instance.report_run_failed(run, message)
    see_off(instance, engine, run.run_id, message)
