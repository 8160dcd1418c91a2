"""New launches, job runs and instances: buffered, skipped or arrived (rules 4.2, 6.1)."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from databuild_dagster.model import events as e
from databuild_dagster.model.errors import IllegalMove
from databuild_dagster.model.fold.folding import Folding
from databuild_dagster.model.refs import Ref, asset_of, derive_partition_uuid, partition_key_of
from databuild_dagster.model.rows import InstanceRow, JobRunRow, LaunchRow, RefRow
from databuild_dagster.model.states import InstanceCause, JobRunCause

_json = msgspec.json.Encoder()


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
        job_run.attempt = 1 + max(refs[ref].attempts for ref in run.refs)
        for ref in run.refs:
            _new_instance(folding, refs[ref], job_run, InstanceCause.BUFFERED, code_version=fact.code_version)


def _build_oneself(folding: Folding, requester: str, refs: Iterable[RefRow]) -> None:
    """A requester that waited for another build, and builds the ref after all, got a build (rule 8.1)."""
    waiting = folding.view.waiting_delegations([row.id for row in refs])
    folding.view.take_delegations((requester, ref_id) for ref_id, waiter in waiting if waiter == requester)


def _new_instance(
    folding: Folding, ref: RefRow, job_run: JobRunRow, cause: InstanceCause, *, code_version: str | None = None
) -> InstanceRow:
    """A new instance is canonical at once; the one before becomes history (rule 4.2)."""
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
            _copy_lineage(folding, instance, arrival.same_as)
        keep_manifest(instance, arrival.manifest)


def _copy_lineage(folding: Folding, instance: InstanceRow, uuid: str) -> None:
    """An instance with the same rows has the inputs and the code version of the other."""
    view = folding.view
    same = folding.found(view.instances_by_uuid([uuid]), [uuid], "instance")[uuid]
    instance.same_as_id = same.same_root
    instance.code_version = same.code_version
    read = view.instances_by_id(view.inputs_of([same.id]))
    view.add_inputs(instance.id, [(row.ref_id, row.id) for row in read.values()])


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
