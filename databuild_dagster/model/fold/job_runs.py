"""Job runs, and the instances that they build (rules 6)."""

from __future__ import annotations

from collections.abc import Mapping

from databuild_dagster.model import events as e
from databuild_dagster.model.fold.births import keep_manifest, keep_origin
from databuild_dagster.model.fold.folding import Folding
from databuild_dagster.model.refs import Ref
from databuild_dagster.model.rows import InstanceRow, RefRow
from databuild_dagster.model.states import FAILING, InstanceCause, InstanceState, JobRunCause
from databuild_dagster.model.wording import few_of

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
        folding.move_job_run(job_run, JobRunCause.STARTED)


def job_run_succeeded(folding: Folding, fact: e.JobRunSucceeded) -> None:
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
        keep_origin(folding, instance, output.origin)
        keep_manifest(instance, output.manifest)
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
    """Version 1 named one cycle per output."""
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
            ref.attempts += 1
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
