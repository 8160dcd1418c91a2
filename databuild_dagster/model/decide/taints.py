"""Taints, untaints and reverts (rules 7), and removals of data by the table of `model.removals` (rule 10.8)."""

from databuild_dagster.model import commands as c
from databuild_dagster.model import errors
from databuild_dagster.model import events as e
from databuild_dagster.model.decide.context import Deciding, no_duplicates
from databuild_dagster.model.decide.wants import being_built
from databuild_dagster.model.operations.records import operated_on
from databuild_dagster.model.refs import Ref, asset_of
from databuild_dagster.model.removals import REMOVED, RemovalFacts, why_kept, why_not_erased
from databuild_dagster.model.rows import InstanceRow, TaintRow
from databuild_dagster.model.states import OPEN_JOB_RUNS, TAINTABLE, InstanceState


def taint_partitions(command: c.TaintPartitions, deciding: Deciding) -> list[e.Fact]:
    """A list is all or nothing. Raises `BeingBuilt`; `NothingToTaint` for a ref that is missing, or will be built anyway."""
    if not command.refs and not command.uuids and not command.seen:
        raise errors.InvalidRequest(what="the list of refs", value=[], why="it names none")
    if not command.reason.strip():
        raise errors.NoReason(what="taint", why="readers need it to know what is wrong")
    _check_instances((*command.uuids, *command.seen), deciding)
    for ref, row in deciding.existing_refs(command.refs).items():
        if row is None or row.state is None or row.canonical_id is None:
            raise errors.NothingToTaint(ref=ref, state="missing")
        if row.leased:
            raise being_built(row, deciding)
        if row.state not in TAINTABLE:
            raise errors.NothingToTaint(ref=ref, state=row.state.value)
    if command.taint_id is not None and deciding.view.taints([command.taint_id]):
        raise errors.InvalidRequest(what="taint id", value=command.taint_id, why="another taint has it")
    refs = tuple(dict.fromkeys((*command.refs, *_still_seen(command.seen, deciding))))
    if not refs and not command.uuids:
        # Readers see none of the instances now.
        return []
    return [
        e.TaintCreated(
            taint_id=command.taint_id or deciding.new_id(),
            refs=refs,
            reason=command.reason,
            uuids=_with_the_same_rows(refs, command.uuids, deciding) if command.downstream else command.uuids,
            downstream=command.downstream,
        )
    ]


def _still_seen(uuids: tuple[str, ...], deciding: Deciding) -> list[Ref]:
    """The refs of instances whose rows readers still see live, perhaps in other files."""
    view = deciding.view
    instances = view.instances_by_uuid(uuids)
    refs = view.refs_by_id(instance.ref_id for instance in instances.values())
    canonical = view.instances_by_id(ref.canonical_id for ref in refs.values() if ref.canonical_id is not None)
    return [
        ref.ref
        for instance in instances.values()
        if (ref := refs[instance.ref_id]).state is InstanceState.LIVE
        and ref.canonical_id is not None
        and canonical[ref.canonical_id].same_root == instance.same_root
    ]


def _with_the_same_rows(refs: tuple[Ref, ...], uuids: tuple[str, ...], deciding: Deciding) -> tuple[str, ...]:
    """`uuids`, and uuids of instances with the same rows in other files: a build from any of them is a build from all."""
    view = deciding.view
    canonical = {row.canonical_id for row in view.refs(refs).values() if row.canonical_id is not None}
    named = view.instances_by_uuid(uuids)
    same = view.instances_same_as([*canonical, *(instance.id for instance in named.values())])
    others = view.instances_by_id(instance_id for instance_id in same if instance_id not in canonical)
    return tuple(dict.fromkeys((*uuids, *(instance.uuid for instance in others.values()))))


def _check_instances(uuids: tuple[str, ...], deciding: Deciding) -> None:
    """An instance that was never live was never read, so no data comes from it (rule 7.3)."""
    instances = deciding.found(deciding.view.instances_by_uuid(uuids), uuids, InstanceRow)
    for uuid in uuids:
        if not instances[uuid].was_live:
            raise errors.InvalidRequest(what="the instance to taint", value=uuid, why="it was never live")
    no_duplicates(uuids)


def untaint_partitions(command: c.UntaintPartitions, deciding: Deciding) -> list[e.Fact]:
    """Raises `NothingToUntaint` for a taint that acts on no canonical instance and on no build to come (rule 7.1)."""
    named = [command.taint_id]
    taint = deciding.found(deciding.view.taints(named), named, TaintRow)[command.taint_id]
    if taint.canceled_at is not None:
        raise errors.NothingToUntaint(taint_id=command.taint_id, why="it is canceled already")
    instances = deciding.view.instances_by_id(deciding.view.instances_of_taint(taint.id))
    refs = deciding.view.refs_by_id(instance.ref_id for instance in instances.values())
    why = [] if instances else ["no instance carries it"]
    for instance in instances.values():
        ref = refs[instance.ref_id]
        if ref.canonical_id == instance.id and instance.manifest_state == REMOVED:
            why.append(f"the data of {ref.ref} was removed, so there is nothing to bring back")
        elif ref.canonical_id == instance.id and instance.was_live:
            return [e.TaintCanceled(taint_id=command.taint_id, reason=command.reason)]
        elif ref.canonical_id == instance.id:
            why.append(f"{ref.ref} was never live, so there is nothing to bring back")
        elif ref.canonical_id is not None:
            replaced_by = deciding.view.instances_by_id([ref.canonical_id])[ref.canonical_id].uuid
            why.append(f"{ref.ref} was replaced by instance {replaced_by}")
    if taint.downstream and _may_be_read(list(instances.values()), deciding):
        return [e.TaintCanceled(taint_id=command.taint_id, reason=command.reason)]
    raise errors.NothingToUntaint(taint_id=command.taint_id, why="; ".join(why[:3]))


def _may_be_read(instances: list[InstanceRow], deciding: Deciding) -> bool:
    """Whether an open job run may have read any of `instances`: readers saw the data after the job run was buffered (rule 7.1)."""
    since = deciding.view.building_since()
    left_seqs = deciding.left_seqs([instance for instance in instances if instance.was_live])
    return since is not None and any(seq > since for seq in left_seqs.values())


def revert_canonical(command: c.RevertCanonical, deciding: Deciding) -> list[e.Fact]:
    """Rule 7.4. Raises `BeingBuilt`, `AlreadyCanonical`; `CannotRevert` for an instance that readers must not see."""
    ref = deciding.existing_refs([command.ref])[command.ref]
    instance = deciding.view.instances_by_uuid([command.uuid]).get(command.uuid)
    if instance is None or ref is None or instance.ref_id != ref.id:
        raise errors.CannotRevert(ref=command.ref, uuid=command.uuid, why="it has no such instance")
    if ref.canonical_id == instance.id:
        raise errors.AlreadyCanonical(ref=command.ref, uuid=command.uuid)
    if ref.leased:
        raise being_built(ref, deciding)
    why = None
    if not instance.was_live:
        why = "it was never live"
    elif instance.manifest_state == REMOVED:
        why = "its data was removed"
    elif not command.force and (bad := _tainted_input(instance, deciding)) is not None:
        why = f"it was built from instance {bad}, which a downstream taint covers; `force` reverts to it all the same"
    if why is not None:
        raise errors.CannotRevert(ref=command.ref, uuid=command.uuid, why=why)
    return [e.CanonicalReverted(ref=command.ref, uuid=command.uuid, reason=command.reason)]


def revert_event(command: c.RevertEvent, deciding: Deciding) -> list[e.Fact]:
    """Rule 7.5. Raises `EventNotReverted`, `DuplicateRef`; `NoReason` if an instance is tainted."""
    no_duplicates(move.ref for move in command.reversals)
    causes = _why_not_back(command, deciding)
    if causes:
        raise errors.EventNotReverted(seq=command.seq, causes=causes)
    back = [e.CanonicalReverted(move.ref, move.before, command.reason) for move in command.reversals if move.before]
    tainted = tuple(move.ref for move in command.reversals if move.before is None)
    if not tainted:
        return [*back]
    if not command.reason.strip():
        raise errors.NoReason(what="taint", why="readers need it to know what is wrong")
    return [*back, e.TaintCreated(taint_id=deciding.new_id(), refs=tainted, reason=command.reason)]


def _why_not_back(command: c.RevertEvent, deciding: Deciding) -> list[tuple[str, str]]:
    """The refs that have moved since, or whose instance before readers must not see, each with the cause."""
    view = deciding.view
    rows = view.refs(move.ref for move in command.reversals)
    now = view.instances_by_id(row.canonical_id for row in rows.values() if row.canonical_id is not None)
    before = view.instances_by_uuid(move.before for move in command.reversals if move.before is not None)
    inputs = view.instances_by_id(view.inputs_of([instance.id for instance in before.values()]))
    has_bad_inputs = any(instance.n_spreading for instance in inputs.values())
    causes: list[tuple[str, str]] = []
    for move in command.reversals:
        row = rows.get(move.ref)
        canonical = now.get(row.canonical_id) if row is not None and row.canonical_id is not None else None
        instance = None if move.before is None else before[move.before]
        why = None
        if canonical is None or canonical.uuid != move.uuid:
            why = f"instance {None if canonical is None else canonical.uuid} took its place since"
        elif instance is not None and instance.manifest_state == REMOVED:
            why = f"the data of instance {instance.uuid}, which was live before, was removed"
        elif instance is not None and not command.force:
            bad = _tainted_input(instance, deciding) if has_bad_inputs else None
            if instance.n_taints:
                why = f"instance {instance.uuid}, which was live before, has a taint now"
            elif bad is not None:
                why = f"instance {instance.uuid} was built from instance {bad}, which a downstream taint covers"
        if why is not None:
            causes.append((move.ref, why))
    return causes


def _tainted_input(instance: InstanceRow, deciding: Deciding) -> str | None:
    inputs = deciding.view.instances_by_id(deciding.view.inputs_of([instance.id]))
    return next((row.uuid for row in inputs.values() if row.n_spreading), None)


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


def _held(instances: list[InstanceRow], deciding: Deciding) -> dict[str, RemovalFacts]:
    view = deciding.view
    refs = view.refs_by_id({instance.ref_id for instance in instances})
    job_runs = view.job_runs_by_id({instance.job_run_id for instance in instances})
    left_seqs = deciding.left_seqs(instances)
    building_since = view.building_since()
    operated = operated_on({asset_of(ref.ref) for ref in refs.values()}, lambda keys: view.meta_entries(keys).values())
    found = {}
    for instance in instances:
        ref = refs[instance.ref_id]
        found[instance.uuid] = RemovalFacts(
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
