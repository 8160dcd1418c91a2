"""Removals of data by the table of `model.removals`, and their end (rule 10.8)."""

from __future__ import annotations

from databuild_dagster.model import commands as c
from databuild_dagster.model import events as e
from databuild_dagster.model.decide.context import Deciding, no_duplicates
from databuild_dagster.model.operations.records import operated_on
from databuild_dagster.model.refs import asset_of
from databuild_dagster.model.removals import REMOVED, Held, why_kept, why_not_erased
from databuild_dagster.model.rows import InstanceRow
from databuild_dagster.model.states import OPEN_JOB_RUNS


def remove_manifests(command: c.RemoveManifests, deciding: Deciding) -> list[e.Fact]:
    """An instance that has to stay by now is left out."""
    instances = _instances(command.uuids, deciding)
    held = _held(list(instances.values()), deciding)
    if command.erasure is not None:
        gone = tuple(uuid for uuid in command.uuids if why_not_erased(held[uuid]) is None)
    else:
        gone = tuple(uuid for uuid in command.uuids if why_kept(held[uuid], tainted=command.tainted) is None)
    return [e.ManifestRemoved(uuids=gone, reason=command.reason, erasure=command.erasure)] if gone else []


def finish_removals(command: c.FinishRemovals, deciding: Deciding) -> list[e.Fact]:
    """Each removed instance once."""
    instances = _instances(command.uuids, deciding)
    finished = tuple(
        uuid
        for uuid, instance in instances.items()
        if instance.manifest_state == REMOVED and instance.cleared_at is None
    )
    return [e.RemovalFinished(uuids=finished)] if finished else []


def _instances(uuids: tuple[str, ...], deciding: Deciding) -> dict[str, InstanceRow]:
    """Raises `NotFound`, `DuplicateRef`."""
    no_duplicates(uuids)
    return deciding.found(deciding.view.instances_by_uuid(uuids), uuids, InstanceRow)


def _held(instances: list[InstanceRow], deciding: Deciding) -> dict[str, Held]:
    view = deciding.view
    refs = view.refs_by_id({instance.ref_id for instance in instances})
    job_runs = view.job_runs_by_id({instance.job_run_id for instance in instances})
    left_seqs = deciding.left_seqs(instances)
    building_since = view.building_since()
    operated = operated_on({asset_of(ref.ref) for ref in refs.values()}, lambda keys: view.meta_entries(keys).values())
    found = {}
    for instance in instances:
        ref = refs[instance.ref_id]
        found[instance.uuid] = Held(
            state=instance.state,
            canonical_state=ref.state,
            is_canonical=ref.canonical_id == instance.id,
            was_live=bool(instance.was_live),
            manifest_state=instance.manifest_state,
            has_manifest=instance.manifest_uri is not None,
            is_from_outside=instance.origin is not None,
            job_run_has_ended=job_runs[instance.job_run_id].state not in OPEN_JOB_RUNS,
            is_wanted=ref.n_open_wants > 0,
            is_operated_on=instance.uuid in operated,
            left_seq=left_seqs[instance.id],
            building_since=building_since,
        )
    return found
