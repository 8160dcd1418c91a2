"""An event makes new state: look the move up, do the bookkeeping, then react until nothing follows any more.

Refuses nothing that was decided, reads no clock, makes no ids (SPEC 2.4, 3.2). What cannot be is an `IllegalMove`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import msgspec

from databuild_dagster.model import events as e
from databuild_dagster.model.coordination import FIRST_OUTCOME, Answer, DelegationOutcome
from databuild_dagster.model.datasets import ArcSpec
from databuild_dagster.model.errors import IllegalMove
from databuild_dagster.model.folding import Folding
from databuild_dagster.model.react import count_want, settle
from databuild_dagster.model.refs import asset_of, derive_partition_uuid, partition_key_of
from databuild_dagster.model.removals import REMOVED
from databuild_dagster.model.rows import (
    NEVER,
    ArcRow,
    DatasetRow,
    DelegationRow,
    InstanceRow,
    JobRunRow,
    LaunchRow,
    RefRow,
    TaintRow,
    WantRow,
)
from databuild_dagster.model.states import FAILING, InstanceCause, InstanceState, JobRunCause, WantCause
from databuild_dagster.model.view import View
from databuild_dagster.model.wording import few_of

_json = msgspec.json.Encoder()

#: What decide found about an impacted output, as the cause of its move.
_VERDICTS = {
    "unbuildable": InstanceCause.MISSED_UNBUILDABLE,
    "cycle": InstanceCause.ON_CYCLE,
    "too_many_misses": InstanceCause.TOO_MANY_MISSES,
}


def fold(view: View, event: e.Event) -> None:
    """Apply one event to the state. Raises `IllegalMove` when the log and the state cannot both be right."""
    folding = Folding(view, event)
    evolve = _EVOLVES.get(type(event.fact))
    if evolve is None:
        raise IllegalMove(seq=event.seq, entity="log", state="-", on=type(event.fact).__name__, why="no fold for it")
    evolve(folding, event.fact)
    settle(folding)


def _want_created(folding: Folding, fact: e.WantCreated) -> None:
    view, at = folding.view, folding.at
    expires_at = NEVER if fact.expires_at is None else fact.expires_at
    deadline = NEVER if fact.deadline is None else fact.deadline
    refs = view.ensure_refs(ref for want in fact.wants for ref in want.refs)
    for entry in fact.wants:
        want = WantRow(
            id=view.next_id(),
            want_id=entry.id,
            request_id=fact.request_id,
            source=fact.source,
            source_id=fact.source_id,
            comment=fact.comment,
            priority=fact.priority,
            created_at=at,
            data_timestamp=fact.data_timestamp,
            expires_at=expires_at,
            deadline=deadline,
            # Who is waited for has a deadline too, and no SLA: there is one alert, for who asked.
            sla_at=fact.deadline if fact.sla_seconds is not None else None,
            n_refs=len(entry.refs),
        )
        view.add(want)
        folding.bear_want(want)
        view.link_want(want.id, [refs[ref].id for ref in entry.refs])
        for ref in entry.refs:
            row = refs[ref]
            count_want(row, want)
            folding.count_state(want, row.state, +1)
            if row.state is InstanceState.UPSTREAM_BUILDING:
                view.unsettled.add(row.id)


def _want_canceled(folding: Folding, fact: e.WantCanceled) -> None:
    for want in folding.found(folding.view.wants(fact.want_ids), fact.want_ids, "want").values():
        folding.end_want(want, WantCause.CANCELED)


def _want_expired(folding: Folding, fact: e.WantExpired) -> None:
    for want in folding.found(folding.view.wants(fact.want_ids), fact.want_ids, "want").values():
        folding.end_want(want, WantCause.EXPIRED)


def _want_sla_missed(folding: Folding, fact: e.WantSlaMissed) -> None:
    for want in folding.found(folding.view.wants(fact.want_ids), fact.want_ids, "want").values():
        want.sla_missed_at, want.sla_at = folding.at, None


def _launch(
    folding: Folding, launch_id: str, job: str, location: str, owner: str, code_version: str | None
) -> LaunchRow:
    launch = LaunchRow(
        id=folding.view.next_id(),
        launch_id=launch_id,
        job=job,
        location=location,
        owner=owner,
        code_version=code_version,
        buffered_at=folding.at,
    )
    folding.view.add(launch)
    return launch


def _job_run(
    folding: Folding,
    launch: LaunchRow,
    job_run_id: str,
    partition_key: str | None,
    refs: tuple[str, ...],
    cause: JobRunCause,
) -> JobRunRow:
    job_run = JobRunRow(
        id=folding.view.next_id(),
        job_run_id=job_run_id,
        launch_id=launch.id,
        partition_key=partition_key,
        refs=_json.encode(refs).decode(),
        buffered_at=folding.at,
    )
    folding.view.add(job_run)
    folding.bear_job_run(job_run, cause)
    return job_run


def _job_run_buffered(folding: Folding, fact: e.JobRunBuffered) -> None:
    refs = folding.view.ensure_refs(ref for run in fact.runs for ref in run.refs)
    launch = _launch(folding, fact.launch_id, fact.job, fact.location, fact.owner, fact.code_version)
    if any(row.n_joined for row in refs.values()):
        _build_oneself(folding, fact.owner, refs.values())
    for run in fact.runs:
        job_run = _job_run(folding, launch, run.job_run_id, run.partition_key, run.refs, JobRunCause.BUFFERED)
        for ref in run.refs:
            _new_instance(folding, refs[ref], job_run, InstanceCause.BUFFERED, code_version=fact.code_version)


def _build_oneself(folding: Folding, requester: str, refs: Iterable[RefRow]) -> None:
    """Who has waited for others and builds it after all got a build, and nothing else (SPEC 8.1)."""
    waiting = folding.view.waiting_delegations([row.id for row in refs])
    folding.view.take_delegations((requester, ref_id) for ref_id, who in waiting if who == requester)


def _new_instance(
    folding: Folding, ref: RefRow, job_run: JobRunRow, cause: InstanceCause, *, code_version: str | None = None
) -> InstanceRow:
    """Instances are canonical at once; the one before becomes history (SPEC 4.2)."""
    if ref.leased:
        raise IllegalMove(
            seq=folding.seq, entity=ref.ref, state=str(ref.state), on=cause.value, why="the ref is leased (I1)"
        )
    instance = InstanceRow(
        id=folding.view.next_id(),
        uuid=derive_partition_uuid(job_run.job_run_id, ref.ref),
        ref_id=ref.id,
        job_run_id=job_run.id,
        previous_id=ref.last_id,
        created_seq=folding.seq,
        created_at=folding.at,
        code_version=code_version,
    )
    folding.view.add(instance)
    folding.bear_instance(instance, ref, cause)
    return instance


def _job_run_started(folding: Folding, fact: e.JobRunStarted) -> None:
    launch = folding.found(folding.view.launches([fact.launch_id]), [fact.launch_id], "launch")[fact.launch_id]
    launch.dagster_run_id = fact.dagster_run_id
    launch.holder = fact.holder
    launch.started_at = folding.at
    for job_run in folding.job_runs(fact.job_run_ids):
        job_run.started_at = folding.at
        folding.move_job_run(job_run, JobRunCause.STARTED)


def _job_run_succeeded(folding: Folding, fact: e.JobRunSucceeded) -> None:
    view = folding.view
    job_runs = {row.job_run_id: row for row in folding.job_runs(run.job_run_id for run in fact.runs)}
    instances = folding.outputs(job_runs.values())
    outputs = [(job_runs[run.job_run_id], output) for run in fact.runs for output in run.outputs]
    inputs = view.instances_by_uuid(uuid for _, output in outputs for uuid in output.inputs.values())
    for job_run in job_runs.values():
        folding.move_job_run(job_run, JobRunCause.SUCCEEDED)
    for job_run, output in outputs:
        instance = folding.output(instances, job_run, output.ref)
        instance.code_version = output.code_version
        _keep_origin(folding, instance, output.origin)
        _keep_manifest(instance, output.manifest)
        folding.move_instance(instance, InstanceCause.SUCCEEDED)
        if output.inputs:
            _keep_lineage(folding, instance, folding.found(inputs, output.inputs.values(), "input instance"), output)


def _keep_lineage(
    folding: Folding, instance: InstanceRow, inputs: Mapping[str, InstanceRow], output: e.OutputFact
) -> None:
    read = [inputs[uuid] for uuid in output.inputs.values()]
    folding.view.add_inputs(instance.id, [(each.ref_id, each.id) for each in read])
    if spreading := [each.id for each in read if each.n_spreading]:
        folding.carry_on(instance, spreading)


def _keep_origin(folding: Folding, instance: InstanceRow, origin: str | None) -> None:
    if origin is not None:
        instance.origin = folding.ref_of(instance).origin = origin


def _keep_manifest(instance: InstanceRow, manifest: e.ManifestFact | None) -> None:
    if manifest is None:
        return
    instance.manifest_state = manifest.state
    instance.manifest_uri = manifest.uri
    instance.n_files = manifest.files
    instance.n_rows = manifest.rows
    instance.n_bytes = manifest.bytes


def _job_run_dep_missed(folding: Folding, fact: e.JobRunDepMissed) -> None:
    """SPEC 6.3 and 6.5: what is missing is judged now, so that no wake-up between the look and the record is lost."""
    view = folding.view
    job_runs = {row.job_run_id: row for row in folding.job_runs(miss.job_run_id for miss in fact.misses)}
    instances = folding.outputs(job_runs.values())
    impacts = [impact for miss in fact.misses for impact in miss.impacted]
    missing = view.ensure_refs(ref for impact in impacts if impact.verdict == "wait" for ref in impact.missing)
    for miss in fact.misses:
        job_run = job_runs[miss.job_run_id]
        impacted = {impact.ref: impact for impact in miss.impacted}
        job_run.error = _describe(miss)
        folding.move_job_run(job_run, JobRunCause.DEP_MISSED)
        for instance in instances[job_run.id].values():
            ref = folding.ref_of(instance)
            impact = impacted.get(ref.ref)
            if impact is None:
                folding.move_instance(instance, InstanceCause.OTHERS_MISSED)
                continue
            ref.misses += 1
            if job_run.started_at is not None:
                # What the orchestrator itself finds missing is declared, so there is nothing to learn from it.
                ref.learned_id = instance.id
            if impact.verdict == "wait":
                _wait(folding, instance, ref, [missing[text] for text in impact.missing], fact.retry_at)
            else:
                instance.reason = impact.reason
                folding.move_instance(instance, _VERDICTS[impact.verdict])
    _fail_cycles(folding, impacts)


def _describe(miss: e.RunMissFact) -> str:
    missing = sorted({ref for impact in miss.impacted for ref in impact.missing})
    return f"missing: {few_of(missing)}"


def _wait(folding: Folding, instance: InstanceRow, ref: RefRow, missing: list[RefRow], retry_at: float) -> None:
    failed = [row.ref for row in missing if row.state in FAILING]
    unmet = [row for row in missing if row.state is not InstanceState.LIVE]
    if failed:
        instance.reason = f"{failed[0]} failed"
        folding.wait_for(instance, missing)
        folding.move_instance(instance, InstanceCause.MISSED_FAILED)
    elif not unmet:
        folding.remember(instance, missing)
        folding.move_instance(instance, InstanceCause.MISSED_BUT_LIVE, retry_at=retry_at)
    else:
        instance.n_unmet = len(unmet)
        folding.wait_for(instance, missing)
        folding.move_instance(instance, InstanceCause.MISSED)


def _fail_cycles(folding: Folding, impacts: list[e.ImpactFact]) -> None:
    on_cycle = {text: impact.reason for impact in impacts for text in impact.cycle[1:]}
    refs = folding.view.refs(on_cycle)
    instances = folding.view.instances_by_id(ref.canonical_id for ref in refs.values() if ref.canonical_id is not None)
    for ref in refs.values():
        instance = instances[ref.canonical_id] if ref.canonical_id is not None else None
        if instance is not None and instance.state is InstanceState.UPSTREAM_BUILDING:
            instance.reason = on_cycle[ref.ref]
            folding.move_instance(instance, InstanceCause.ON_CYCLE)


def _job_run_failed(folding: Folding, fact: e.JobRunFailed) -> None:
    _job_run_gave_out(folding, fact.failures, JobRunCause.FAILED)


def _job_run_lost(folding: Folding, fact: e.JobRunLost) -> None:
    _job_run_gave_out(folding, fact.failures, JobRunCause.LOST)


def _job_run_gave_out(folding: Folding, failures: tuple[e.RunFailureFact, ...], cause: JobRunCause) -> None:
    job_runs = {row.job_run_id: row for row in folding.job_runs(failure.job_run_id for failure in failures)}
    instances = folding.outputs(job_runs.values())
    for failure in failures:
        job_run = job_runs[failure.job_run_id]
        job_run.error = failure.error
        folding.move_job_run(job_run, cause)
        for instance in instances[job_run.id].values():
            ref = folding.ref_of(instance)
            ref.attempts += 1
            instance.reason = failure.error
            if ref.ref in failure.retries:
                folding.move_instance(instance, InstanceCause.WILL_RETRY, retry_at=failure.retries[ref.ref])
            else:
                folding.move_instance(instance, InstanceCause.GAVE_UP)


def _job_run_canceled(folding: Folding, fact: e.JobRunCanceled) -> None:
    job_runs = list(folding.job_runs(fact.job_run_ids))
    instances = folding.outputs(job_runs)
    for job_run in job_runs:
        job_run.error = fact.reason or None
        folding.move_job_run(job_run, JobRunCause.CANCELED)
        for instance in instances[job_run.id].values():
            instance.reason = fact.reason or None
            folding.move_instance(instance, InstanceCause.CANCELED)


def _job_run_skipped(folding: Folding, fact: e.JobRunSkipped) -> None:
    launch = _launch(folding, fact.launch_id, fact.job, fact.location, fact.dagster_run_id, None)
    launch.dagster_run_id = fact.dagster_run_id
    for run in fact.runs:
        _job_run(folding, launch, run.job_run_id, run.partition_key, run.refs, JobRunCause.SKIPPED)


def _partition_delegated(folding: Folding, fact: e.PartitionDelegated) -> None:
    view = folding.view
    refs = folding.found(view.refs(d.ref for d in fact.delegations), [d.ref for d in fact.delegations], "ref")
    uuids = [delegation.uuid for delegation in fact.delegations]
    instances = folding.found(view.instances_by_uuid(uuids), uuids, "instance")
    before = view.delegations(fact.requester, (ref.id for ref in refs.values()))
    rows = []
    for delegation in fact.delegations:
        ref, instance = refs[delegation.ref], instances[delegation.uuid]
        kind = Answer(delegation.kind)
        outcome = FIRST_OUTCOME[kind]
        ref.n_joined += (outcome is DelegationOutcome.WAITING) - (before.get(ref.id) == DelegationOutcome.WAITING)
        rows.append(
            DelegationRow(
                requester=fact.requester,
                ref_id=ref.id,
                kind=kind.value,
                outcome=outcome.value,
                asked_at=folding.at,
                job_run_id=instance.job_run_id,
                instance_id=instance.id,
                reason=delegation.reason,
                ended_at=None if outcome is DelegationOutcome.WAITING else folding.at,
                served_id=instance.id if outcome is DelegationOutcome.LIVE else None,
            )
        )
    view.put_delegations(rows)


def _delegation_given_up(folding: Folding, fact: e.DelegationGivenUp) -> None:
    refs = folding.found(folding.view.refs(fact.refs), fact.refs, "ref")
    folding.give_up(((ref, fact.requester) for ref in refs.values()), fact.reason)


def _taint_created(folding: Folding, fact: e.TaintCreated) -> None:
    view = folding.view
    taint = TaintRow(
        id=view.next_id(),
        taint_id=fact.taint_id,
        reason=fact.reason,
        actor=folding.event.actor,
        created_at=folding.at,
        downstream=int(fact.downstream),
    )
    view.add(taint)
    refs = folding.found(view.refs(fact.refs), fact.refs, "ref")
    canonical = view.instances_by_id(ref.canonical_id for ref in refs.values() if ref.canonical_id is not None)
    named = folding.found(view.instances_by_uuid(fact.uuids), fact.uuids, "instance")
    instances = {instance.id: instance for instance in (*canonical.values(), *named.values())}
    folding.carry(taint, instances.values())
    if fact.downstream:
        _taint_downstream(folding, taint, set(instances))


def _taint_downstream(folding: Folding, taint: TaintRow, seen: set[int]) -> None:
    """Through every instance built from these by recorded inputs, whatever has become of it (SPEC 7.3)."""
    level = list(seen)
    while level:
        level = [each for each in folding.view.instances_built_from(level) if each not in seen]
        seen.update(level)
        folding.carry(taint, folding.view.instances_by_id(level).values())


def _taint_canceled(folding: Folding, fact: e.TaintCanceled) -> None:
    view = folding.view
    taint = folding.found(view.taints([fact.taint_id]), [fact.taint_id], "taint")[fact.taint_id]
    taint.canceled_at = folding.at
    pairs = [(instance_id, taint.id) for instance_id in view.instances_of_taint(taint.id)]
    folding.let_go_of_taints(pairs, InstanceCause.UNTAINTED)


def _canonical_reverted(folding: Folding, fact: e.CanonicalReverted) -> None:
    view = folding.view
    ref = folding.found(view.refs([fact.ref]), [fact.ref], "ref")[fact.ref]
    instance = folding.found(view.instances_by_uuid([fact.uuid]), [fact.uuid], "instance")[fact.uuid]
    folding.revert(ref, instance)


def _manifest_removed(folding: Folding, fact: e.ManifestRemoved) -> None:
    """It has no state of its own among the instance's: what was live once was so for whoever read it."""
    instances = folding.found(folding.view.instances_by_uuid(fact.uuids), fact.uuids, "instance")
    for instance in instances.values():
        instance.manifest_state = REMOVED


def _removal_finished(folding: Folding, fact: e.RemovalFinished) -> None:
    instances = folding.found(folding.view.instances_by_uuid(fact.uuids), fact.uuids, "instance")
    for instance in instances.values():
        instance.cleared_at = folding.at


def _lot_arrived(folding: Folding, fact: e.LotArrived) -> None:
    """Each arrival is a job run that was never ours to run, so that its instance has a uuid like any other."""
    refs = folding.view.ensure_refs(arrival.ref for arrival in fact.arrivals)
    for arrival in fact.arrivals:
        asset = asset_of(arrival.ref)
        launch = _launch(folding, arrival.job_run_id, asset, "", arrival.origin, None)
        key = partition_key_of(arrival.ref) or None
        job_run = _job_run(folding, launch, arrival.job_run_id, key, (arrival.ref,), JobRunCause.ARRIVED)
        instance = _new_instance(folding, refs[arrival.ref], job_run, InstanceCause.ARRIVED)
        if arrival.same_as is None:
            _keep_origin(folding, instance, arrival.origin)
        else:
            # Its files are ours, and where the ref's rows came from is still where they came from.
            _keep_sameness(folding, instance, arrival.same_as)
        _keep_manifest(instance, arrival.manifest)


def _keep_sameness(folding: Folding, instance: InstanceRow, uuid: str) -> None:
    """It was made from what the other one was made from, by the same code."""
    view = folding.view
    same = folding.found(view.instances_by_uuid([uuid]), [uuid], "instance")[uuid]
    instance.same_as_id = same.same_root
    instance.code_version = same.code_version
    read = view.instances_by_id(view.inputs_of([same.id]))
    view.add_inputs(instance.id, [(each.ref_id, each.id) for each in read.values()])


def _dataset_registered(folding: Folding, fact: e.DatasetRegistered) -> None:
    view = folding.view
    known = view.datasets([*(spec.asset for spec in fact.datasets), *fact.removed])
    for spec in fact.datasets:
        text = _json.encode(spec).decode()
        row = known.get(spec.asset)
        if row is None:
            view.add(
                DatasetRow(
                    id=view.next_id(),
                    asset=spec.asset,
                    location=spec.location,
                    job=spec.job,
                    kind=spec.kind.value,
                    spec=text,
                )
            )
        else:
            row.location, row.job, row.kind, row.spec, row.removed = spec.location, spec.job, spec.kind.value, text, 0
    for asset in fact.removed:
        known[asset].removed = 1
    _arcs_registered(folding, fact)


def _arcs_registered(folding: Folding, fact: e.DatasetRegistered) -> None:
    """A new arc is woken by what becomes live from now on."""
    view = folding.view
    known = view.arcs([*(spec.asset for spec in fact.datasets), *fact.removed])
    subscribing = {spec.asset for spec in fact.datasets if isinstance(spec.arc, ArcSpec)}
    for asset, arc in known.items():
        if asset in subscribing and arc.removed:
            arc.removed, arc.seq = 0, folding.seq
        elif asset not in subscribing:
            arc.removed = 1
    for spec in fact.datasets:
        if spec.asset in subscribing and spec.asset not in known:
            view.add(ArcRow(id=view.next_id(), asset=spec.asset, seq=folding.seq))


def _arc_fired(folding: Folding, fact: e.ArcFired) -> None:
    view = folding.view
    arcs = folding.found(view.arcs(fact.arcs), fact.arcs, "arc")
    for arc in arcs.values():
        arc.seq = max(arc.seq, fact.up_to_seq)
    uuids = [firing.source for firing in fact.firings]
    sources = folding.found(view.instances_by_uuid(uuids), uuids, "source instance")
    fired = folding.found(arcs, [firing.arc for firing in fact.firings], "followed arc")
    view.add_firings((fired[each.arc].id, sources[each.source].id, folding.seq) for each in fact.firings)


def _meta_invoked(folding: Folding, fact: e.MetaInvoked) -> None:
    writes: dict[str, bytes | None] = {**dict.fromkeys(fact.removed), **fact.puts}
    for prefix in fact.cleared:
        folding.view.clear_meta(prefix, writes)
    folding.view.write_meta(writes)


def _meta_compacted(folding: Folding, fact: e.MetaCompacted) -> None:
    folding.view.compact_meta(fact.revision)


_EVOLVES: dict[type[e.Fact], Callable[[Folding, Any], None]] = {
    e.WantCreated: _want_created,
    e.WantCanceled: _want_canceled,
    e.WantExpired: _want_expired,
    e.WantSlaMissed: _want_sla_missed,
    e.JobRunBuffered: _job_run_buffered,
    e.JobRunStarted: _job_run_started,
    e.JobRunSucceeded: _job_run_succeeded,
    e.JobRunDepMissed: _job_run_dep_missed,
    e.JobRunFailed: _job_run_failed,
    e.JobRunLost: _job_run_lost,
    e.JobRunCanceled: _job_run_canceled,
    e.JobRunSkipped: _job_run_skipped,
    e.PartitionDelegated: _partition_delegated,
    e.DelegationGivenUp: _delegation_given_up,
    e.TaintCreated: _taint_created,
    e.TaintCanceled: _taint_canceled,
    e.CanonicalReverted: _canonical_reverted,
    e.ManifestRemoved: _manifest_removed,
    e.RemovalFinished: _removal_finished,
    e.LotArrived: _lot_arrived,
    e.ArcFired: _arc_fired,
    e.DatasetRegistered: _dataset_registered,
    e.MetaInvoked: _meta_invoked,
    e.MetaCompacted: _meta_compacted,
}
