"""The tick's duty for held Dagster runs: answer, release, time out or repair each, and hold queued runs.

A queued run is held as soon as other runs answer all that it asks for. Of several ticks at once only one does the duty.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from threading import Lock

from dagster import DagsterEvent, DagsterInstance, DagsterRun, DagsterRunStatus, RunRecord, RunsFilter

from databuild_dagster.bindings.adapter.run_tags import HELD, HOLD_TAG, LAUNCH_TAG, RELEASED
from databuild_dagster.bindings.claims import run_messages
from databuild_dagster.bindings.claims.queued_request import Request, answers, request_of
from databuild_dagster.bindings.orchestration.coordinator import DatabuildRunCoordinator
from databuild_dagster.bindings.orchestration.held_runs import answer, end, log_to_run, release, see_off, state_of
from databuild_dagster.bindings.registry.instance import engine_for
from databuild_dagster.engine.engine import Engine
from databuild_dagster.model.coordination import Answer
from databuild_dagster.model.logs import log_failure, logger

#: Held runs that a tick tends, and queued runs that it reads, the oldest first.
MAX_HELD_PER_TICK = 500
#: How long a run belongs to the process that submits it; after that the process is taken for dead.
SUBMITTING_SECONDS = 60.0

#: Queued runs whose requests are cached.
MAX_REMEMBERED = 5_000

_log = logger(__name__)
_one_tick_at_a_time = Lock()


def tend_held_runs(instance: DagsterInstance, *, location: str, delegation_timeout_seconds: float) -> None:
    """Tend every held run, and hold queued runs that other runs answer by now; a failure is logged and left to a later
    tick.

    Of several ticks at once only one does it. The timeout is for assets of `location`.
    """
    coordinator = instance.run_coordinator
    if not isinstance(coordinator, DatabuildRunCoordinator):
        return
    wearing = RunsFilter(tags={HOLD_TAG: HELD})
    held = [run.run_id for run in instance.get_runs(filters=wearing, limit=MAX_HELD_PER_TICK, ascending=True)]
    queued = _not_held_yet(instance) if coordinator.holds() else []
    if not held and not queued:
        return
    engine = engine_for(instance)
    with _alone(engine) as alone:
        if not alone:
            return
        for run_id in held:
            with _left_to_later(run_id):
                _tend(instance, engine, run_id, location, delegation_timeout_seconds)
        for run_id in _answerable(instance, engine, queued):
            with _left_to_later(run_id):
                _hold_queued(instance, engine, run_id)


@contextmanager
def _left_to_later(run_id: str) -> Iterator[None]:
    try:
        yield
    except Exception as error:
        log_failure(_log, f"Dagster run {run_id} is left to a later tick", error)


# Queued


def _not_held_yet(instance: DagsterInstance) -> list[DagsterRun]:
    """Runs in the queue that had something to build when they were submitted."""
    queued = RunsFilter(statuses=[DagsterRunStatus.QUEUED])
    runs = instance.get_runs(filters=queued, limit=MAX_HELD_PER_TICK, ascending=True)
    # A re-execution has copies of the tags of the run before it, `over` among them.
    return [run for run in runs if run.tags.get(LAUNCH_TAG) is None and run.tags.get(HOLD_TAG) not in (HELD, RELEASED)]


def _answerable(instance: DagsterInstance, engine: Engine, runs: Sequence[DagsterRun]) -> list[str]:
    """The runs that other runs answer by now, from a single read of the store; the request of each run is read once."""
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
    refs = {ref for request in requests.values() for ref in request.refs}
    standings = engine.queries.planning.standings(refs, engine.now())
    return [run_id for run_id, request in requests.items() if Answer.BUILD not in answers(standings, request).values()]


def _hold_queued(instance: DagsterInstance, engine: Engine, run_id: str) -> None:
    """Treat the run as if it was submitted now, unless the daemon has just started it."""
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
    """Whether no other thread or process on this machine tends held runs now."""
    if not _one_tick_at_a_time.acquire(blocking=False):
        yield False
        return
    try:
        with engine.store.database.alone("holding") as alone:
            yield alone
    finally:
        _one_tick_at_a_time.release()


def _tend(instance: DagsterInstance, engine: Engine, run_id: str, location: str, timeout_seconds: float) -> None:
    record = instance.get_run_record_by_id(run_id)
    if record is None or record.dagster_run.tags.get(HOLD_TAG) != HELD:
        return
    run = record.dagster_run
    status = run.status
    if run.is_finished:
        # For example, a person canceled it.
        see_off(instance, engine, run_id, f"its Dagster run ended: {status.value}")
    elif status is DagsterRunStatus.QUEUED:
        _continue(instance, engine, record, location, timeout_seconds)
    elif (
        # No process was started for it, as for a run that is answered here.
        status in (DagsterRunStatus.NOT_STARTED, DagsterRunStatus.STARTED)
        and instance.get_run_stats(run_id).launch_time is None
    ):
        if engine.clock() - record.update_timestamp.timestamp() > SUBMITTING_SECONDS:
            _repair(instance, engine, run)
    elif status in (DagsterRunStatus.STARTING, DagsterRunStatus.STARTED):
        # The daemon has other limits than ours; the step decides.
        release(instance, run_id)


def _continue(
    instance: DagsterInstance, engine: Engine, record: RunRecord, location: str, timeout_seconds: float
) -> None:
    """A held run in the queue is answered, released, timed out, or stays held."""
    run = record.dagster_run
    request = request_of(instance, engine, run)
    if request is None:
        release(instance, run.run_id)
        return
    state = state_of(engine, request)
    if not state.is_recorded:
        # A crash interrupted its submission.
        answer(instance, engine, request)
    elif state.free:
        log_to_run(instance, run, run_messages.given_up_elsewhere(state.free))
        release(instance, run.run_id)
    elif not state.waiting:
        end(instance, engine, request, state)
    elif any(dataset.location == location for dataset in request.datasets.values()):
        waited = engine.clock() - record.create_timestamp.timestamp()
        if waited > timeout_seconds:
            message = run_messages.stalled(state.waiting, timeout_seconds)
            instance.report_run_failed(run, message)
            see_off(instance, engine, run.run_id, message)


def _repair(instance: DagsterInstance, engine: Engine, run: DagsterRun) -> None:
    """The submitting process is dead: its next step is done now, the later steps by the next ticks."""
    if run.status is DagsterRunStatus.NOT_STARTED:
        instance.report_dagster_event(DagsterEvent.job_enqueue(run), run.run_id)
    elif (request := request_of(instance, engine, run)) is not None:
        # All refs were live when it was started; only its end is missing.
        end(instance, engine, request, state_of(engine, request))
