"""Instances of the base that an environment uses, and what happened to them in the base (rules 16.3, 16.8)."""

from collections.abc import Iterable
from itertools import count

import msgspec

from databuild_dagster.model import commands as c
from databuild_dagster.model import events as e
from databuild_dagster.model.decide.context import Deciding
from databuild_dagster.model.decide.job_runs import check_manifest
from databuild_dagster.model.errors import EnvironmentMoved, InvalidRequest
from databuild_dagster.model.refs import derive_partition_uuid
from databuild_dagster.model.removals import REMOVED
from databuild_dagster.model.rows import InstanceRow
from databuild_dagster.model.states import InstanceState


def borrow_instances(command: c.BorrowInstances, deciding: Deciding) -> list[e.Fact]:
    """A list may meet what another process has borrowed or begun to build meanwhile, which stays as it is.

    Raises `DuplicateRef`, `EnvironmentMoved`, `InvalidRequest` for an instance without data, and as `check_wantable`.
    """
    if command.opening is not None:
        check_opening(command.environment, command.opening, command.revision, deciding)
    rows = deciding.existing_refs(birth.ref for birth in command.births)
    uuids = {birth.ref: derive_partition_uuid(birth.job_run_id, birth.ref) for birth in command.births}
    known = deciding.view.instances_by_uuid((*uuids.values(), *command.seen.values()))
    seen = {ref: known[uuid].id for ref, uuid in command.seen.items()}
    births = []
    for birth in command.births:
        check_manifest(birth.ref, birth.manifest)
        if birth.manifest is None and birth.origin is None:
            raise InvalidRequest(
                what=f"the instance of {birth.ref}", value=birth.job_run_id, why="no place has its data"
            )
        row = rows[birth.ref]
        is_open = row is None or not (row.leased or row.state is InstanceState.LIVE)
        if row is not None and birth.ref in seen:
            is_open = is_open or row.canonical_id == seen[birth.ref]
        if is_open and uuids[birth.ref] not in known:
            births.append(birth)
    return [e.InstancesBorrowed(births=tuple(births))] if births else []


def check_opening(environment: str, key: str, revision: int, deciding: Deciding) -> None:
    """Check that the opening of an environment is as it was read. Raises `EnvironmentMoved`."""
    opening = deciding.view.meta_entries([key]).get(key)
    if opening is None or opening.value is None or opening.revision != revision:
        raise EnvironmentMoved(environment=environment)


def follow_base(command: c.FollowBase, deciding: Deciding) -> list[e.Fact]:
    """Of each fact what this log does not have yet, because two processes may follow at once. Raises `NotFound`."""
    facts: list[e.Fact] = []
    for fact in command.facts:
        match fact:
            case e.TaintCreated():
                facts += _tainted(fact, deciding)
            case e.TaintCanceled():
                taint = deciding.view.taints([fact.taint_id]).get(fact.taint_id)
                facts += [fact] if taint is not None and taint.canceled_at is None else []
            case e.CanonicalReverted():
                (row,) = _instances([fact.uuid], deciding)
                ref = deciding.view.refs_by_id([row.ref_id])[row.ref_id]
                is_tainted = ref.canonical_id == row.id and ref.state is InstanceState.TAINTED
                facts += [fact] if is_tainted and row.manifest_state != REMOVED else []
            case e.ManifestRemoved():
                facts += _removed(fact, facts, deciding)
    return facts


def _tainted(fact: e.TaintCreated, deciding: Deciding) -> list[e.Fact]:
    """The taint on the instances that do not carry it: by a further id on those that were borrowed too late for the first event."""
    view = deciding.view
    rows = _instances(fact.uuids, deciding)
    pairs = view.taints_of_instances([row.id for row in rows])
    names = {id: taint.taint_id for id, taint in view.taints_by_id(taint for _, taint in pairs).items()}
    carrying = {instance for instance, taint in pairs if _is_of(fact.taint_id, names[taint])}
    uuids = tuple(row.uuid for row in rows if row.id not in carrying)
    if not uuids:
        return []
    ids = (fact.taint_id if n == 0 else f"{fact.taint_id}.{n}" for n in count())
    free = next(taint_id for taint_id in ids if not view.taints([taint_id]))
    return [msgspec.structs.replace(fact, taint_id=free, refs=(), uuids=uuids)]


def _is_of(taint_id: str, name: str) -> bool:
    return name == taint_id or name.startswith(f"{taint_id}.")


def _removed(fact: e.ManifestRemoved, before: Iterable[e.Fact], deciding: Deciding) -> list[e.Fact]:
    """The removal, with a taint for what readers see live: their files go in the base, whose matter they are."""
    rows = [row for row in _instances(fact.uuids, deciding) if row.manifest_state != REMOVED]
    if not rows:
        return []
    refs = deciding.view.refs_by_id({row.ref_id for row in rows})
    tainted = {uuid for one in before if isinstance(one, e.TaintCreated) for uuid in one.uuids}
    seen = tuple(
        row.uuid
        for row in rows
        if refs[row.ref_id].canonical_id == row.id and row.state is InstanceState.LIVE and row.uuid not in tainted
    )
    uuids = tuple(row.uuid for row in rows)
    why = f"its data was removed: {fact.reason if fact.erasure is None else fact.erasure.reason}"
    return [
        *([e.TaintCreated(taint_id=deciding.new_id(), refs=(), reason=why, uuids=seen)] if seen else []),
        e.ManifestRemoved(uuids, fact.reason, fact.erasure),
        e.RemovalFinished(uuids),
    ]


def _instances(uuids: Iterable[str], deciding: Deciding) -> list[InstanceRow]:
    named = list(uuids)
    rows = deciding.found(deciding.view.instances_by_uuid(named), named, InstanceRow)
    return [rows[uuid] for uuid in named]
