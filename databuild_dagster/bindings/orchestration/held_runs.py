"""Dagster runs whose refs are live or built by other runs are answered without a process (rules 8.1, 8.3).

Such a run has the tag `databuild/hold` from before its first record until it is answered or released, so that after a
crash between any two steps the next tick finds it. While others build, it is queued and holds no slot, no process and
no lease. Every tick tends the held runs (`tend_held_runs`).
"""

from dataclasses import dataclass, field

from dagster import DagsterInstance, DagsterRun

from databuild_dagster.bindings.adapter.run_tags import HELD, HOLD_TAG, OVER, RELEASED
from databuild_dagster.bindings.claims import run_messages
from databuild_dagster.bindings.claims.queued_request import Request, answers, claim, request_of
from databuild_dagster.bindings.display.checks import MAX_NAMED, report_tainted
from databuild_dagster.bindings.display.materialization import Served
from databuild_dagster.bindings.display.partition_status import plan_runs, runs_to_show
from databuild_dagster.bindings.orchestration.finish_run import end_as_answered, log_to_run
from databuild_dagster.bindings.registry.instance import engine_for
from databuild_dagster.engine.engine import Engine
from databuild_dagster.model.commands import GiveUpDelegations
from databuild_dagster.model.coordination import Answer
from databuild_dagster.model.refs import Ref
from databuild_dagster.model.states import FAILING, LEASED, InstanceState


@dataclass
class RequestState:
    """The present state of the refs of a request."""

    served: dict[Ref, Served] = field(default_factory=dict)
    #: Ref to the sentence with the reason.
    denied: dict[Ref, str] = field(default_factory=dict)
    #: Ref to the job run that builds it; None before its next try.
    waiting: dict[Ref, str | None] = field(default_factory=dict)
    #: Refs that no other run builds any more.
    free: list[Ref] = field(default_factory=list)
    #: Refs that were being built at the request.
    joined: set[Ref] = field(default_factory=set)
    #: Whether the ledger has the answers to the request.
    is_recorded: bool = False


def receive(instance: DagsterInstance, run: DagsterRun, *, may_hold: bool) -> bool:
    """Answer a Dagster run that is being submitted, or mark it as held; returns whether it has ended.

    A run that has not ended is to be enqueued. Raises errors of the store and of Dagster.
    """
    engine = engine_for(instance)
    request = request_of(instance, engine, run)
    if request is None:
        return False
    found = set(answers(engine.queries.standings(request.refs, engine.now()), request).values())
    if Answer.BUILD in found or (Answer.JOIN in found and not may_hold):
        return False
    instance.add_run_tags(run.run_id, {HOLD_TAG: HELD})
    return answer(instance, engine, request)


def release(instance: DagsterInstance, run_id: str) -> None:
    """Let a run start like any other."""
    instance.add_run_tags(run_id, {HOLD_TAG: RELEASED})


def answer(instance: DagsterInstance, engine: Engine, request: Request) -> bool:
    """Record the answers to a request that is marked as held; returns whether its run has ended."""
    run = request.run
    if not claim(engine, request):
        release(instance, run.run_id)
        return False
    state = state_of(engine, request)
    if state.free:
        release(instance, run.run_id)
        return False
    if state.waiting:
        builders = _dagster_runs(engine, [job_run for job_run in state.waiting.values() if job_run is not None])
        links = {
            "job runs": [job_run or "" for job_run in state.waiting.values()],
            "built by": sorted(set(builders.values())),
        }
        message = run_messages.joined(list(state.waiting))
        log_to_run(instance, run, f"{message} This run is queued until it is live, and holds nothing.", metadata=links)
        return False
    end(instance, engine, request, state)
    return True


def state_of(engine: Engine, request: Request) -> RequestState:
    """The answers of the ledger, and what has become of the refs since."""
    state = RequestState()
    ledger = {entry.ref: entry for entry in engine.ledger.of_requester(request.run.run_id)}
    state.is_recorded = bool(ledger)
    now = engine.now()
    canonicals = engine.queries.canonical(request.refs)
    live = [one.job_run for one in canonicals.values() if one.state is InstanceState.LIVE and one.job_run]
    dagster_runs = _dagster_runs(engine, live)
    paused = engine.queries.paused(request.refs, now)
    for ref, canonical in canonicals.items():
        entry = ledger.get(ref)
        if entry is not None and entry.kind is Answer.JOIN:
            state.joined.add(ref)
        if canonical.state is InstanceState.LIVE and canonical.uuid is not None:
            job_run = canonical.job_run or ""
            state.served[ref] = Served(canonical.uuid, job_run, dagster_runs.get(job_run))
        elif entry is not None and entry.kind is Answer.REFUSE:
            state.denied[ref] = run_messages.refused(ref, entry.reason)
        elif ref in paused and canonical.state is not InstanceState.BUILDING:
            state.denied[ref] = run_messages.paused(ref, paused[ref])
        elif canonical.state in FAILING:
            state.denied[ref] = run_messages.failed_elsewhere(ref, canonical.reason)
        elif canonical.state in LEASED:
            state.waiting[ref] = canonical.job_run
        elif canonical.retry_at is not None and canonical.retry_at > now:
            state.waiting[ref] = None
        else:
            state.free.append(ref)
    return state


def _dagster_runs(engine: Engine, job_run_ids: list[str]) -> dict[str, str]:
    """Job run to its Dagster run; without job runs that had none, such as those of data from outside."""
    found = engine.queries.job_runs_named(dict.fromkeys(job_run_ids))
    return {job_run.id: job_run.dagster_run_id for job_run in found.values() if job_run.dagster_run_id is not None}


def end(instance: DagsterInstance, engine: Engine, request: Request, state: RequestState) -> None:
    if request.taint_checks:
        report_tainted(instance, engine.queries.tainted_refs(request.taint_checks, MAX_NAMED))
    end_as_answered(instance, request, state.served, state.denied, state.joined)
    see_off(instance, engine, request.run.run_id)


def see_off(instance: DagsterInstance, engine: Engine, run_id: str, why: str = "") -> None:
    """After a held run has ended: its waits are given up, and no partition shows as built or failed by it."""
    run = instance.get_run_by_id(run_id)
    if run is None or not run.is_finished:
        return
    request = request_of(instance, engine, run)
    refs = () if request is None else request.refs
    if run.is_success:
        # Refs that are not live; for the others the run's success is the last event.
        refs = tuple(ref for ref, state in engine.queries.states(refs).items() if state is not InstanceState.LIVE)
    else:
        engine.handle(GiveUpDelegations(requester=run_id, reason=why), actor=f"dagster run {run_id}")
    plan_runs(instance, runs_to_show(engine, refs))
    instance.add_run_tags(run_id, {HOLD_TAG: OVER})
