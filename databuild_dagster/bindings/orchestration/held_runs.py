"""Dagster runs whose refs are live or built by other runs are answered without a process (rules 8.1, 8.3).

Such a run has the tag `databuild/hold` from before its first record until it is answered or released, so that after a
crash between any two steps the next tick finds it. While other runs build, it is queued and holds no slot, no process and
no lease. Every tick tends the held runs (`tend_held_runs`).
"""

import logging
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import dagster as dg

from databuild_dagster.bindings.adapter import run_tags
from databuild_dagster.bindings.adapter.dagster_private import (
    BACKFILL_ID_TAG,
    AssetObservationData,
    EngineEventData,
    StepMaterializationData,
)
from databuild_dagster.bindings.claims import run_messages
from databuild_dagster.bindings.claims.queued_request import Request, answers, claim, request_of
from databuild_dagster.bindings.display.checks import MAX_NAMED, report_tainted
from databuild_dagster.bindings.display.materialization import Served, event_of, shown_keys
from databuild_dagster.bindings.display.partition_status import plan_runs, runs_to_show
from databuild_dagster.bindings.registry.instance import engine_for
from databuild_dagster.bindings.registry.registration import dagster_partition
from databuild_dagster.engine.engine import Engine
from databuild_dagster.model.commands import GiveUpDelegations
from databuild_dagster.model.coordination import Answer
from databuild_dagster.model.refs import Ref, asset_of, make_ref, partition_key_of
from databuild_dagster.model.states import FAILING, LEASED, InstanceState
from databuild_dagster.model.wording import few_of

#: Observations of a run, and refusals in its log; beyond that a line counts the rest.
MAX_SHOWN = 50


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


def receive(instance: dg.DagsterInstance, run: dg.DagsterRun, *, may_hold: bool) -> bool:
    """Answer a Dagster run that is being submitted, or mark it as held; returns whether it has ended.

    A run that has not ended is to be enqueued. Raises errors of the store and of Dagster.
    """
    engine = engine_for(instance)
    request = request_of(instance, engine, run)
    if request is None:
        return False
    found = set(answers(engine.queries.planning.standings(request.refs, engine.now()), request).values())
    if Answer.BUILD in found or (Answer.JOIN in found and not may_hold):
        return False
    instance.add_run_tags(run.run_id, {run_tags.HOLD_TAG: run_tags.HELD})
    return answer(instance, engine, request)


def release(instance: dg.DagsterInstance, run_id: str) -> None:
    """Let a run start like any other."""
    instance.add_run_tags(run_id, {run_tags.HOLD_TAG: run_tags.RELEASED})


def answer(instance: dg.DagsterInstance, engine: Engine, request: Request) -> bool:
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
    canonicals = engine.queries.canonical.of(request.refs)
    live = [one.job_run for one in canonicals.values() if one.state is InstanceState.LIVE and one.job_run]
    dagster_runs = _dagster_runs(engine, live)
    paused = engine.queries.planning.paused(request.refs, now)
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
    """Job run to its Dagster run; without job runs that had no Dagster run, such as job runs of data from outside."""
    found = engine.queries.job_runs.named(dict.fromkeys(job_run_ids))
    return {job_run.id: job_run.dagster_run_id for job_run in found.values() if job_run.dagster_run_id is not None}


def end(instance: dg.DagsterInstance, engine: Engine, request: Request, state: RequestState) -> None:
    if request.taint_checks:
        report_tainted(instance, engine.queries.instances.tainted_refs(request.taint_checks, MAX_NAMED))
    end_as_answered(instance, request, state.served, state.denied, state.joined)
    see_off(instance, engine, request.run.run_id)


def see_off(instance: dg.DagsterInstance, engine: Engine, run_id: str, why: str = "") -> None:
    """After a held run has ended: its waits are given up, and no partition shows as built or failed by it."""
    run = instance.get_run_by_id(run_id)
    if run is None or not run.is_finished:
        return
    request = request_of(instance, engine, run)
    refs = () if request is None else request.refs
    if run.is_success:
        # Refs that are not live; for the others the run's success is the last event.
        states = engine.queries.canonical.states(refs)
        refs = tuple(ref for ref, state in states.items() if state is not InstanceState.LIVE)
    else:
        engine.handle(GiveUpDelegations(requester=run_id, reason=why), actor=f"dagster run {run_id}")
    plan_runs(instance, runs_to_show(engine, refs))
    instance.add_run_tags(run_id, {run_tags.HOLD_TAG: run_tags.OVER})


# The end of a run without a step, as its steps would have ended it: every live partition is observed with its data version, or
# materialized again where Dagster does not show it otherwise; refusals are in the log, and fail the run.


def end_as_answered(
    instance: dg.DagsterInstance,
    request: Request,
    served: Mapping[Ref, Served],
    denied: Mapping[Ref, str],
    joined: Collection[Ref] = (),
) -> None:
    """End the run like a step that built nothing: each ref is live without it, or was denied, which fails the run.

    `denied` are sentences, by ref; `joined` are the refs that were being built when the run asked. A repetition is
    harmless and repairs a crash halfway.
    """
    run = request.run
    tags = ({run_tags.DELEGATED_TAG: "true"} if served else {}) | (
        {run_tags.OUTCOME_TAG: run_tags.OUTCOME_DENIED} if denied else {}
    )
    keys = [key for key in dict.fromkeys(map(partition_key_of, request.refs)) if key is not None]
    if len(keys) > 1:
        tags[run_tags.PARTITIONS_TAG] = run_tags.range_in_words(keys)
    instance.add_run_tags(run.run_id, tags)
    for refs, sentence in _kinds(served, joined):
        log_to_run(instance, run, sentence, metadata=_links([served[ref] for ref in refs]))
    for _, refs in request.by_job():
        if skipped := run_messages.skipped_of(refs, [ref for ref in refs if ref in served and ref not in joined]):
            log_to_run(instance, run, run_messages.skipped(skipped))
    for event in _asset_events(instance, request, served):
        instance.report_dagster_event(event, run.run_id)
    for sentence in list(denied.values())[:MAX_SHOWN]:
        log_to_run(instance, run, sentence, logging.ERROR)
    if len(denied) > MAX_SHOWN:
        log_to_run(instance, run, f"{len(denied) - MAX_SHOWN} more were denied.", logging.ERROR)
    current = instance.get_run_by_id(run.run_id)
    if current is None or current.is_finished or current.status is dg.DagsterRunStatus.STARTING:
        # Deleted, canceled or started just now.
        return
    # Both at once: Dagster takes an open run without a process for a lost one.
    if current.status is not dg.DagsterRunStatus.STARTED:
        _report(instance, run, dg.DagsterEventType.RUN_START, "Other runs built its partitions; it needs no process.")
    if denied:
        instance.report_run_failed(run, run_messages.denied(denied))
    else:
        _report(instance, run, dg.DagsterEventType.RUN_SUCCESS, "Every partition is live.")


def log_to_run(
    instance: dg.DagsterInstance,
    run: dg.DagsterRun,
    message: str,
    level: int = logging.INFO,
    metadata: Mapping[str, Any] | None = None,
) -> None:
    """Write a line into the log of a run that has no process."""
    _report(instance, run, dg.DagsterEventType.ENGINE_EVENT, message, level, EngineEventData(metadata or {}))


def _report(
    instance: dg.DagsterInstance,
    run: dg.DagsterRun,
    kind: dg.DagsterEventType,
    message: str,
    level: int = logging.INFO,
    data: EngineEventData | None = None,
) -> None:
    event = dg.DagsterEvent(kind.value, run.job_name, message=message, event_specific_data=data)
    instance.report_dagster_event(event, run.run_id, level)


def _kinds(served: Iterable[Ref], joined: Collection[Ref]) -> Iterator[tuple[list[Ref], str]]:
    """The refs that were live at the request, and the refs built since, each with a sentence."""
    reused = [ref for ref in served if ref not in joined]
    followed = [ref for ref in served if ref in joined]
    if reused:
        yield reused, run_messages.reused(reused)
    if followed:
        yield followed, f"{few_of(followed)}: live, built elsewhere while this run waited."


def _links(served: Sequence[Served]) -> dict[str, Any]:
    """The builds that answer: their instances, and links to their Dagster runs."""
    runs = dict.fromkeys(one.dagster_run_id for one in served if one.dagster_run_id is not None)
    names = [f"served by {number}" for number in range(1, len(runs) + 1)] if len(runs) > 1 else ["served by"]
    links = {name: dg.MetadataValue.dagster_run(run) for name, run in zip(names, list(runs)[:MAX_SHOWN], strict=False)}
    return {"instances": [one.uuid for one in served[:MAX_SHOWN]], **links}


def _asset_events(
    instance: dg.DagsterInstance, request: Request, served: Mapping[Ref, Served]
) -> Iterator[dg.DagsterEvent]:
    """Materializations for a backfill, which fails without them, and for refs new to Dagster; else observations."""
    by_asset: dict[str, dict[str | None, Served]] = {}
    for ref, one in served.items():
        by_asset.setdefault(asset_of(ref), {})[partition_key_of(ref)] = one
    engine, left = engine_for(instance), MAX_SHOWN
    for asset, by_key in by_asset.items():
        partitions = request.datasets[asset].partitions
        known = set() if BACKFILL_ID_TAG in request.run.tags else shown_keys(instance, asset, by_key)
        for partition_key, one in by_key.items():
            partition = dagster_partition(partitions, partition_key)
            data: StepMaterializationData | AssetObservationData
            if partition_key not in known:
                kind, message = (
                    dg.DagsterEventType.ASSET_MATERIALIZATION,
                    "Materialized before, by another Dagster run.",
                )
                data = StepMaterializationData(
                    dg.AssetMaterialization(**event_of(engine, make_ref(asset, partition_key), partition, one))
                )
            elif left:
                left -= 1
                kind, message = dg.DagsterEventType.ASSET_OBSERVATION, "Live already."
                data = AssetObservationData(
                    dg.AssetObservation(**event_of(engine, make_ref(asset, partition_key), partition, one))
                )
            else:
                continue
            job_name, step_key = request.run.job_name, request.steps[asset]
            yield dg.DagsterEvent(kind.value, job_name, step_key=step_key, message=message, event_specific_data=data)
