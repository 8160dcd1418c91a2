"""Dagster runs that ask for nothing but what others build, or have built: answered without a process (SPEC 8.1, 8.3).

Such a run wears the tag `databuild/hold` from before anything is recorded for it until it has been seen to, so that a
crash between any two steps here leaves a run that the next tick finds. While others build, it is queued and holds
nothing: no slot, no process, no lease. Every tick looks after those that are held.
"""

import logging
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from threading import Lock

from dagster import (
    DagsterEvent,
    DagsterInstance,
    DagsterRun,
    DagsterRunStatus,
    RunRecord,
    RunsFilter,
)

from databuild_dagster.bindings import sayings
from databuild_dagster.bindings.answers import end_as_answered, say
from databuild_dagster.bindings.coordinator import DatabuildRunCoordinator
from databuild_dagster.bindings.instance import engine_for
from databuild_dagster.bindings.last_words import last_words, speak
from databuild_dagster.bindings.serving import Served
from databuild_dagster.bindings.submitted import Request, answers, answers_by, claim, request_of
from databuild_dagster.bindings.tags import HELD, HOLD_TAG, LAUNCH_TAG, OVER, RELEASED
from databuild_dagster.bindings.taint_check import report_taint_checks
from databuild_dagster.engine import Engine
from databuild_dagster.model.commands import GiveUpDelegations
from databuild_dagster.model.coordination import Answer
from databuild_dagster.model.states import FAILING, LEASED, InstanceState

#: Held runs that one tick looks after, and queued ones, the oldest first.
MAX_HELD_PER_TICK = 500
#: So long a run belongs to the process in which it was submitted; what is left undone then was left by a crash.
SUBMITTING_SECONDS = 60.0

#: Queued runs of which is remembered what they ask for.
MAX_REMEMBERED = 5_000

_log = logging.getLogger(__name__)
_one_tick_at_a_time = Lock()
_asked: dict[str, Request | None] = {}


@dataclass
class _Standing:
    """How what a request asked for stands by now."""

    served: dict[str, Served] = field(default_factory=dict)
    #: Ref to the sentence why not.
    denied: dict[str, str] = field(default_factory=dict)
    #: Ref to the job run that builds it; None while its next try is to come.
    waiting: dict[str, str | None] = field(default_factory=dict)
    #: Nobody builds them any more.
    free: list[str] = field(default_factory=list)
    #: Of all refs, those that were being built when they were asked for.
    joined: set[str] = field(default_factory=set)
    #: Whether the ledger says what the request got.
    is_recorded: bool = False


def receive(instance: DagsterInstance, run: DagsterRun, *, may_hold: bool) -> bool:
    """Answer a Dagster run that is being submitted, or mark it to be held; whether it has ended.

    Not ended, it is to be enqueued in either case. Raises whatever the store or Dagster raises.
    """
    engine = engine_for(instance)
    request = request_of(instance, engine, run)
    if request is None:
        return False
    found = set(answers(engine, request).values())
    if Answer.BUILD in found or (Answer.JOIN in found and not may_hold):
        return False
    instance.add_run_tags(run.run_id, {HOLD_TAG: HELD})
    return _answer(instance, engine, request)


def release(instance: DagsterInstance, run_id: str) -> None:
    """Let a run start like any other."""
    instance.add_run_tags(run_id, {HOLD_TAG: RELEASED})


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
    for run in runs:
        if run.run_id not in _asked:
            if len(_asked) >= MAX_REMEMBERED:
                _asked.clear()
            _asked[run.run_id] = None
            with _left_to_later(run.run_id):
                _asked[run.run_id] = request_of(instance, engine, run)
    requests = {run.run_id: request for run in runs if (request := _asked.get(run.run_id)) is not None}
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
    _answer(instance, engine, request)


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
        _see_off(instance, engine, run_id, f"its Dagster run ended: {status.value}")
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
    standing = _standing(engine, request)
    if not standing.is_recorded:
        # A crash came between.
        _answer(instance, engine, request)
    elif standing.free:
        say(instance, run, sayings.given_up_elsewhere(standing.free))
        release(instance, run.run_id)
    elif not standing.waiting:
        _end(instance, engine, request, standing)
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
        _end(instance, engine, request, _standing(engine, request))


def _answer(instance: DagsterInstance, engine: Engine, request: Request) -> bool:
    """Record who answers a request that is marked as held; whether its run has ended by that."""
    run = request.run
    if not claim(engine, request):
        release(instance, run.run_id)
        return False
    standing = _standing(engine, request)
    if standing.free:
        release(instance, run.run_id)
        return False
    if standing.waiting:
        builders = _dagster_runs(engine, [each for each in standing.waiting.values() if each is not None])
        links = {
            "job runs": [each or "" for each in standing.waiting.values()],
            "built by": sorted(set(builders.values())),
        }
        message = sayings.joined(list(standing.waiting))
        say(instance, run, f"{message} This run is queued until it is live, and holds nothing.", metadata=links)
        return False
    _end(instance, engine, request, standing)
    return True


def _standing(engine: Engine, request: Request) -> _Standing:
    """By what the ledger says that the request got, and what has become of it since."""
    standing = _Standing()
    ledger = {entry.ref: entry for entry in engine.ledger.of_requester(request.run.run_id)}
    standing.is_recorded = bool(ledger)
    now = engine.now()
    canonicals = engine.queries.canonical(request.refs)
    live = [each.job_run for each in canonicals.values() if each.state is InstanceState.LIVE and each.job_run]
    dagster_runs = _dagster_runs(engine, live)
    for ref, canonical in canonicals.items():
        entry = ledger.get(ref)
        if entry is not None and entry.kind is Answer.JOIN:
            standing.joined.add(ref)
        if canonical.state is InstanceState.LIVE and canonical.uuid is not None:
            job_run = canonical.job_run or ""
            standing.served[ref] = Served(canonical.uuid, job_run, dagster_runs.get(job_run))
        elif entry is not None and entry.kind is Answer.REFUSE:
            standing.denied[ref] = sayings.refused(entry.reason)
        elif canonical.state in FAILING:
            standing.denied[ref] = sayings.failed_elsewhere(ref, canonical.reason)
        elif canonical.state in LEASED:
            standing.waiting[ref] = canonical.job_run
        elif canonical.retry_at is not None and canonical.retry_at > now:
            standing.waiting[ref] = None
        else:
            standing.free.append(ref)
    return standing


def _dagster_runs(engine: Engine, job_run_ids: list[str]) -> dict[str, str]:
    """Job run to the Dagster run that executes it, or did; without those that none did, as data from outside."""
    found = engine.queries.job_runs_named(dict.fromkeys(job_run_ids))
    return {each.id: each.dagster_run_id for each in found.values() if each.dagster_run_id is not None}


def _time_out(
    instance: DagsterInstance,
    engine: Engine,
    run: DagsterRun,
    waiting: Mapping[str, str | None],
    timeout_seconds: float,
) -> None:
    message = sayings.stalled(waiting, timeout_seconds)
    instance.report_run_failed(run, message)
    _see_off(instance, engine, run.run_id, message)


def _end(instance: DagsterInstance, engine: Engine, request: Request, standing: _Standing) -> None:
    report_taint_checks(instance, engine, request.taint_checks)
    end_as_answered(instance, request, standing.served, standing.denied, standing.joined)
    _see_off(instance, engine, request.run.run_id)


def _see_off(instance: DagsterInstance, engine: Engine, run_id: str, why: str = "") -> None:
    """A held run has ended: it waits for nothing any more, and no partition looks as if it had built, or failed, it."""
    run = instance.get_run_by_id(run_id)
    if run is None or not run.is_finished:
        return
    request = request_of(instance, engine, run)
    refs = () if request is None else request.refs
    if run.is_success:
        # Only what is not live; of the others its success is the last word.
        refs = tuple(ref for ref, state in engine.queries.states(refs).items() if state is not InstanceState.LIVE)
    else:
        engine.handle(GiveUpDelegations(requester=run_id, reason=why), actor=f"dagster run {run_id}")
    speak(instance, last_words(engine, refs))
    instance.add_run_tags(run_id, {HOLD_TAG: OVER})
