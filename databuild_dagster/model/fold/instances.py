"""Instances with their launches and job runs, from birth to removal: buffered, skipped or arrived, built or not, tainted,
reverted, returned, removed (rules 4.2, 6, 7, 10.8).
"""

from collections.abc import Iterable, Mapping

import msgspec

from databuild_dagster.model import events as e
from databuild_dagster.model.errors import IllegalMove
from databuild_dagster.model.fold.folding import Folding
from databuild_dagster.model.refs import Ref, asset_of, derive_partition_uuid, partition_key_of
from databuild_dagster.model.removals import REMOVED
from databuild_dagster.model.rows import BORROWED, OF_ENVIRONMENT, InstanceRow, JobRunRow, LaunchRow, RefRow, TaintRow
from databuild_dagster.model.states import FAILING, InstanceCause, InstanceState, JobRunCause
from databuild_dagster.model.surroundings import Surrounding
from databuild_dagster.model.wording import few_of

_json = msgspec.json.Encoder()
_refs_of = msgspec.json.Decoder(list[Ref]).decode


def _launch(
    folding: Folding, launch_id: str, job: str, location: str, owner: str, code_version: str | None
) -> LaunchRow:
    launch = LaunchRow(folding.view.next_id(), launch_id, job, location, owner, code_version, folding.at)
    folding.view.add(launch)
    return launch


def _job_run(
    folding: Folding,
    launch: LaunchRow,
    job_run_id: str,
    partition_key: str | None,
    refs: tuple[Ref, ...],
    cause: JobRunCause,
) -> JobRunRow:
    listed = _json.encode(refs).decode()
    job_run = JobRunRow(folding.view.next_id(), job_run_id, launch.id, partition_key, listed, folding.at)
    folding.view.add(job_run)
    folding.bear_job_run(job_run, cause)
    return job_run


def job_run_buffered(folding: Folding, fact: e.JobRunBuffered) -> None:
    refs = folding.view.ensure_refs(ref for run in fact.runs for ref in run.refs)
    launch = _launch(folding, fact.launch_id, fact.job, fact.location, fact.owner, fact.code_version)
    if any(row.n_joined for row in refs.values()):
        _build_oneself(folding, fact.owner, refs.values())
    for run in fact.runs:
        job_run = _job_run(folding, launch, run.job_run_id, run.partition_key, run.refs, JobRunCause.BUFFERED)
        for ref in run.refs:
            _new_instance(folding, refs[ref], job_run, InstanceCause.BUFFERED, code_version=fact.code_version)


def _build_oneself(folding: Folding, requester: str, refs: Iterable[RefRow]) -> None:
    """A requester that waited for a foreign build, and builds the ref after all, got a build (rule 8.1)."""
    waiting = folding.view.waiting_delegations([row.id for row in refs])
    folding.view.take_delegations((requester, ref_id) for ref_id, waiter in waiting if waiter == requester)


def _new_instance(
    folding: Folding, ref: RefRow, job_run: JobRunRow, cause: InstanceCause, *, code_version: str | None = None
) -> InstanceRow:
    """A new instance is canonical at once; the instance before becomes history (rule 4.2)."""
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


def job_run_skipped(folding: Folding, fact: e.JobRunSkipped) -> None:
    launch = _launch(folding, fact.launch_id, fact.job, fact.location, fact.dagster_run_id, None)
    launch.dagster_run_id = fact.dagster_run_id
    for run in fact.runs:
        _job_run(folding, launch, run.job_run_id, run.partition_key, run.refs, JobRunCause.SKIPPED)


def lot_arrived(folding: Folding, fact: e.LotArrived) -> None:
    """Each arrival is a job run that has ended, so that its instance has a uuid like any other."""
    refs = folding.view.ensure_refs(arrival.ref for arrival in fact.arrivals)
    for arrival in fact.arrivals:
        asset = asset_of(arrival.ref)
        launch = _launch(folding, arrival.job_run_id, asset, "", arrival.origin, None)
        key = partition_key_of(arrival.ref) or None
        job_run = _job_run(folding, launch, arrival.job_run_id, key, (arrival.ref,), JobRunCause.ARRIVED)
        instance = _new_instance(folding, refs[arrival.ref], job_run, InstanceCause.ARRIVED)
        if arrival.same_as is None:
            keep_origin(folding, instance, arrival.origin)
        else:
            # Its files are ours, and the origin of the ref's rows stays.
            _copy_lineage(folding, instance, job_run, arrival.same_as)
        keep_manifest(instance, arrival.manifest)


def _copy_lineage(folding: Folding, instance: InstanceRow, job_run: JobRunRow, uuid: str) -> None:
    """An instance with the same rows has the inputs and the code of the other."""
    view = folding.view
    same = folding.found(view.instances_by_uuid([uuid]), [uuid], "instance")[uuid]
    instance.same_as_id = same.same_root
    instance.code_version = same.code_version
    job_run.code = view.job_runs_by_id([same.job_run_id])[same.job_run_id].code
    read = view.instances_by_id(view.inputs_of([same.id]))
    view.add_inputs(instance.id, [(row.ref_id, row.id) for row in read.values()])


def instances_borrowed(folding: Folding, fact: e.InstancesBorrowed) -> None:
    _born_elsewhere(folding, fact.births, BORROWED, JobRunCause.BORROWED, InstanceCause.BORROWED)


def instances_promoted(folding: Folding, fact: e.InstancesPromoted) -> None:
    _come_back(folding, fact.returns)
    owner = f"{OF_ENVIRONMENT}{fact.environment}"
    _born_elsewhere(folding, fact.births, owner, JobRunCause.PROMOTED, InstanceCause.PROMOTED)


def _born_elsewhere(
    folding: Folding, births: tuple[e.Birth, ...], owner: str, ran: JobRunCause, cause: InstanceCause
) -> None:
    """A job run of a different log is a row here once, and gets the refs of later events too.

    An input is lineage where this log has the input instance, from an earlier event or from this event.
    """
    view = folding.view
    refs = view.ensure_refs(birth.ref for birth in births)
    job_runs = dict(view.job_runs(birth.job_run_id for birth in births))
    born: dict[str, InstanceRow] = {}
    for birth in births:
        if (job_run := job_runs.get(birth.job_run_id)) is None:
            launch = _launch(folding, birth.job_run_id, birth.job, "", owner, birth.code_version)
            key = partition_key_of(birth.ref)
            job_run = _job_run(folding, launch, birth.job_run_id, key, (birth.ref,), ran)
            job_run.code = birth.code
            job_runs[birth.job_run_id] = job_run
        else:
            job_run.refs = _json.encode((*_refs_of(job_run.refs), birth.ref)).decode()
        instance = _new_instance(folding, refs[birth.ref], job_run, cause, code_version=birth.code_version)
        keep_origin(folding, instance, birth.origin)
        keep_manifest(instance, birth.manifest)
        born[instance.uuid] = instance
        if birth.numbers:
            instance.numbers = _json.encode(birth.numbers).decode()
    same = [birth.same_as for birth in births if birth.same_as is not None]
    known = view.instances_by_uuid([*same, *(uuid for birth in births for uuid in birth.inputs.values())])
    for birth, instance in zip(births, born.values(), strict=True):
        if birth.same_as in known:
            instance.same_as_id = known[birth.same_as].same_root
        read = [row for uuid in birth.inputs.values() if (row := born.get(uuid) or known.get(uuid)) is not None]
        view.add_inputs(instance.id, [(row.ref_id, row.id) for row in read])
        if spreading := [row.id for row in read if row.n_spreading]:
            folding.carry_on(instance, spreading)


def keep_origin(folding: Folding, instance: InstanceRow, origin: str | None) -> None:
    if origin is not None:
        instance.origin = folding.ref_of(instance).origin = origin


def keep_manifest(instance: InstanceRow, manifest: e.ManifestFact | None) -> None:
    if manifest is None:
        return
    instance.manifest_state = manifest.state
    instance.manifest_uri = manifest.uri
    instance.n_files = manifest.files
    instance.n_rows = manifest.rows
    instance.n_bytes = manifest.bytes
    instance.content_hash = manifest.content_hash


#: The verdict of decide about an impacted output, as the cause of its move.
_VERDICTS = {
    "unbuildable": InstanceCause.MISSED_UNBUILDABLE,
    "cycle": InstanceCause.ON_CYCLE,
    "too_many_misses": InstanceCause.TOO_MANY_MISSES,
}


def job_run_started(folding: Folding, fact: e.JobRunStarted) -> None:
    launch = folding.found(folding.view.launches([fact.launch_id]), [fact.launch_id], "launch")[fact.launch_id]
    launch.dagster_run_id = fact.dagster_run_id
    launch.holder = fact.holder
    launch.started_at = folding.at
    for job_run in folding.job_runs(fact.job_run_ids):
        job_run.started_at = folding.at
        job_run.code = fact.made_with.code if fact.made_with else None
        folding.move_job_run(job_run, JobRunCause.STARTED)


def job_run_succeeded(folding: Folding, fact: e.JobRunSucceeded) -> None:
    view = folding.view
    job_runs = {row.job_run_id: row for row in folding.job_runs(run.job_run_id for run in fact.runs)}
    instances = folding.outputs(job_runs.values())
    outputs = [(job_runs[run.job_run_id], output) for run in fact.runs for output in run.outputs]
    inputs = view.instances_by_uuid(uuid for _, output in outputs for uuid in output.inputs.values())
    same_data = [output.same_data_as for _, output in outputs if output.same_data_as is not None]
    same = folding.found(view.instances_by_uuid(same_data), same_data, "instance with equal rows")
    for job_run in job_runs.values():
        folding.move_job_run(job_run, JobRunCause.SUCCEEDED)
    for job_run, output in outputs:
        instance = folding.output(instances, job_run, output.ref)
        instance.code_version = output.code_version
        keep_origin(folding, instance, output.origin)
        keep_manifest(instance, output.manifest)
        if output.same_data_as is not None:
            instance.same_as_id = same[output.same_data_as].same_root
        if output.numbers:
            instance.numbers = _json.encode(output.numbers).decode()
        folding.move_instance(instance, InstanceCause.SUCCEEDED)
        if output.inputs:
            _keep_lineage(folding, instance, folding.found(inputs, output.inputs.values(), "input instance"), output)


def _keep_lineage(
    folding: Folding, instance: InstanceRow, inputs: Mapping[str, InstanceRow], output: e.OutputFact
) -> None:
    read = [inputs[uuid] for uuid in output.inputs.values()]
    folding.view.add_inputs(instance.id, [(row.ref_id, row.id) for row in read])
    if spreading := [row.id for row in read if row.n_spreading]:
        folding.carry_on(instance, spreading)


def job_run_dep_missed(folding: Folding, fact: e.JobRunDepMissed) -> None:
    """Rules 6.3 and 6.5: missing refs are judged in the fold, so that no wake-up since the job run looked is lost."""
    view = folding.view
    job_runs = {row.job_run_id: row for row in folding.job_runs(miss.job_run_id for miss in fact.misses)}
    instances = folding.outputs(job_runs.values())
    impacts = [impact for miss in fact.misses for impact in miss.impacted]
    missing = view.ensure_refs(ref for impact in impacts for ref in _learned(impact))
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
                # The orchestrator finds declared inputs only, and those are known.
                ref.learned_id = instance.id
            learned = [missing[text] for text in _learned(impact)]
            if impact.verdict == "wait":
                _wait(folding, instance, learned, fact.retry_at, damage=impact.reason)
            else:
                folding.remember(instance, learned)
                instance.reason = impact.reason
                folding.move_instance(instance, _VERDICTS[impact.verdict])
    if cycles := _cycles_before(impacts) if fact.cycles is None else fact.cycles:
        _fail_on_cycles(folding, cycles)


def _learned(impact: e.ImpactFact) -> tuple[Ref, ...]:
    return impact.missing if impact.verdict == "wait" else impact.learned


def _cycles_before(impacts: list[e.ImpactFact]) -> dict[Ref, str]:
    """The cycles of an event of version 1, which named a cycle per output."""
    return {text: impact.reason for impact in impacts for text in impact.cycle[1:]}


def _describe(miss: e.RunMissFact) -> str:
    missing = sorted({ref for impact in miss.impacted for ref in impact.missing})
    if damage := next((impact.reason for impact in miss.impacted if impact.verdict == "wait" and impact.reason), ""):
        return damage
    return f"missing: {few_of(missing)}"


def _wait(folding: Folding, instance: InstanceRow, missing: list[RefRow], retry_at: float, *, damage: str) -> None:
    failed = [row.ref for row in missing if row.state in FAILING]
    unmet = [row for row in missing if row.state is not InstanceState.LIVE]
    if failed:
        instance.reason = f"{failed[0]} failed"
        folding.wait_for(instance, missing)
        folding.move_instance(instance, InstanceCause.MISSED_FAILED)
    elif not unmet:
        instance.reason = damage or None
        folding.remember(instance, missing)
        folding.move_instance(instance, InstanceCause.MISSED_BUT_LIVE, retry_at=retry_at)
    else:
        instance.n_unmet = len(unmet)
        folding.wait_for(instance, missing)
        folding.move_instance(instance, InstanceCause.MISSED)


def _fail_on_cycles(folding: Folding, cycles: Mapping[Ref, str]) -> None:
    refs = folding.view.refs(cycles)
    instances = folding.view.instances_by_id(ref.canonical_id for ref in refs.values() if ref.canonical_id is not None)
    for ref in refs.values():
        instance = instances[ref.canonical_id] if ref.canonical_id is not None else None
        if instance is not None and instance.state is InstanceState.UPSTREAM_BUILDING:
            instance.reason = cycles[ref.ref]
            folding.move_instance(instance, InstanceCause.ON_CYCLE)


def job_run_gave_out(folding: Folding, fact: e.JobRunFailed | e.JobRunLost, cause: JobRunCause) -> None:
    job_runs = {row.job_run_id: row for row in folding.job_runs(failure.job_run_id for failure in fact.failures)}
    instances = folding.outputs(job_runs.values())
    for failure in fact.failures:
        job_run = job_runs[failure.job_run_id]
        job_run.error = failure.error
        folding.move_job_run(job_run, cause)
        for instance in instances[job_run.id].values():
            ref = folding.ref_of(instance)
            if failure.owner == Surrounding.PROCESS:
                ref.losses += 1
            if ref.ref not in failure.spared:
                ref.attempts += 1
            elif failure.owner != Surrounding.PROCESS:
                ref.outages += 1
            instance.reason = failure.error
            if ref.ref in failure.retries:
                folding.move_instance(instance, InstanceCause.WILL_RETRY, retry_at=failure.retries[ref.ref])
            else:
                folding.move_instance(instance, InstanceCause.GAVE_UP)


def job_run_canceled(folding: Folding, fact: e.JobRunCanceled) -> None:
    job_runs = list(folding.job_runs(fact.job_run_ids))
    instances = folding.outputs(job_runs)
    failed = frozenset(fact.failed)
    for job_run in job_runs:
        job_run.error = fact.reason or None
        folding.move_job_run(job_run, JobRunCause.CANCELED)
        for instance in instances[job_run.id].values():
            if folding.ref_of(instance).ref in failed:
                instance.reason = f"canceled by {folding.event.actor}"
                folding.move_instance(instance, InstanceCause.STOPPED)
            else:
                instance.reason = fact.reason or None
                folding.move_instance(instance, InstanceCause.CANCELED)


def taint_created(folding: Folding, fact: e.TaintCreated) -> None:
    view = folding.view
    taint = TaintRow(
        id=view.next_id(),
        taint_id=fact.taint_id,
        reason=fact.reason,
        actor=folding.event.actor,
        created_at=folding.at,
        downstream=int(fact.downstream),
        of_code=int(fact.of_code),
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
    """Put the taint on every instance built from `seen` by recorded inputs, in any state, and on those with equal rows (rule 7.3)."""
    level = list(seen)
    while level:
        built = folding.view.instances_built_from(level)
        level = [found for found in folding.view.instances_same_as(built) if found not in seen]
        seen.update(level)
        folding.carry(taint, folding.view.instances_by_id(level).values())


def taint_canceled(folding: Folding, fact: e.TaintCanceled) -> None:
    view = folding.view
    taint = folding.found(view.taints([fact.taint_id]), [fact.taint_id], "taint")[fact.taint_id]
    taint.canceled_at = folding.at
    pairs = [(instance_id, taint.id) for instance_id in view.instances_of_taint(taint.id)]
    folding.let_go_of_taints(pairs, InstanceCause.UNTAINTED)


def canonical_reverted(folding: Folding, fact: e.CanonicalReverted) -> None:
    view = folding.view
    ref = folding.found(view.refs([fact.ref]), [fact.ref], "ref")[fact.ref]
    instance = folding.found(view.instances_by_uuid([fact.uuid]), [fact.uuid], "instance")[fact.uuid]
    folding.revert(ref, instance, InstanceCause.REVERTED)


def instances_returned(folding: Folding, fact: e.InstancesReturned) -> None:
    _come_back(folding, fact.returns)


def _come_back(folding: Folding, returns: tuple[e.Return, ...]) -> None:
    view = folding.view
    refs = folding.found(view.refs(one.ref for one in returns), [one.ref for one in returns], "ref")
    uuids = {one.ref: derive_partition_uuid(one.job_run_id, one.ref) for one in returns}
    instances = folding.found(view.instances_by_uuid(uuids.values()), uuids.values(), "instance")
    for one in returns:
        # Its manifest is for those who follow the log; the instance has it already.
        folding.revert(refs[one.ref], instances[uuids[one.ref]], InstanceCause.RETURNED)


def manifest_removed(folding: Folding, fact: e.ManifestRemoved) -> None:
    """A removed instance keeps its state, because readers saw it live."""
    instances = folding.found(folding.view.instances_by_uuid(fact.uuids), fact.uuids, "instance")
    for instance in instances.values():
        instance.manifest_state = REMOVED


def removal_finished(folding: Folding, fact: e.RemovalFinished) -> None:
    instances = folding.found(folding.view.instances_by_uuid(fact.uuids), fact.uuids, "instance")
    for instance in instances.values():
        instance.cleared_at = folding.at
