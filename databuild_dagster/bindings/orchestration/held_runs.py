"""Dagster runs that ask for nothing but what others build, or have built: answered without a process (SPEC 8.1, 8.3).

Such a run wears the tag `databuild/hold` from before anything is recorded for it until it has been seen to, so that a
crash between any two steps here leaves a run that the next tick finds. While others build, it is queued and holds
nothing: no slot, no process, no lease. Every tick looks after those that are held (`tend_held_runs`).
"""

from dataclasses import dataclass, field

from dagster import (
    DagsterInstance,
    DagsterRun,
)

from databuild_dagster.bindings.adapter.run_tags import HELD, HOLD_TAG, OVER, RELEASED
from databuild_dagster.bindings.claims import run_messages
from databuild_dagster.bindings.claims.queued_request import Request, answers, claim, request_of
from databuild_dagster.bindings.display.checks import report_taint_checks
from databuild_dagster.bindings.display.materialization import Served
from databuild_dagster.bindings.display.partition_status import plan_runs, runs_to_show
from databuild_dagster.bindings.orchestration.finish_run import end_as_answered, say
from databuild_dagster.bindings.registry.instance import engine_for
from databuild_dagster.engine.engine import Engine
from databuild_dagster.model.commands import GiveUpDelegations
from databuild_dagster.model.coordination import Answer
from databuild_dagster.model.refs import Ref
from databuild_dagster.model.states import FAILING, LEASED, InstanceState


@dataclass
class Standing:
    """How what a request asked for stands by now."""

    served: dict[Ref, Served] = field(default_factory=dict)
    #: Ref to the sentence why not.
    denied: dict[Ref, str] = field(default_factory=dict)
    #: Ref to the job run that builds it; None while its next try is to come.
    waiting: dict[Ref, str | None] = field(default_factory=dict)
    #: Nobody builds them any more.
    free: list[Ref] = field(default_factory=list)
    #: Of all refs, those that were being built when they were asked for.
    joined: set[Ref] = field(default_factory=set)
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
    return answer(instance, engine, request)


def release(instance: DagsterInstance, run_id: str) -> None:
    """Let a run start like any other."""
    instance.add_run_tags(run_id, {HOLD_TAG: RELEASED})


def answer(instance: DagsterInstance, engine: Engine, request: Request) -> bool:
    """Record who answers a request that is marked as held; whether its run has ended by that."""
    run = request.run
    if not claim(engine, request):
        release(instance, run.run_id)
        return False
    standing = standing_of(engine, request)
    if standing.free:
        release(instance, run.run_id)
        return False
    if standing.waiting:
        builders = _dagster_runs(engine, [each for each in standing.waiting.values() if each is not None])
        links = {
            "job runs": [each or "" for each in standing.waiting.values()],
            "built by": sorted(set(builders.values())),
        }
        message = run_messages.joined(list(standing.waiting))
        say(instance, run, f"{message} This run is queued until it is live, and holds nothing.", metadata=links)
        return False
    end(instance, engine, request, standing)
    return True


def standing_of(engine: Engine, request: Request) -> Standing:
    """By what the ledger says that the request got, and what has become of it since."""
    standing = Standing()
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
            standing.denied[ref] = run_messages.refused(entry.reason)
        elif canonical.state in FAILING:
            standing.denied[ref] = run_messages.failed_elsewhere(ref, canonical.reason)
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


def end(instance: DagsterInstance, engine: Engine, request: Request, standing: Standing) -> None:
    report_taint_checks(instance, engine, request.taint_checks)
    end_as_answered(instance, request, standing.served, standing.denied, standing.joined)
    see_off(instance, engine, request.run.run_id)


def see_off(instance: DagsterInstance, engine: Engine, run_id: str, why: str = "") -> None:
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
    plan_runs(instance, runs_to_show(engine, refs))
    instance.add_run_tags(run_id, {HOLD_TAG: OVER})
