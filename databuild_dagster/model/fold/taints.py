"""Taints, reverts and removals (rules 7, 10.8)."""

from __future__ import annotations

from databuild_dagster.model import events as e
from databuild_dagster.model.fold.folding import Folding
from databuild_dagster.model.removals import REMOVED
from databuild_dagster.model.rows import TaintRow
from databuild_dagster.model.states import InstanceCause


def taint_created(folding: Folding, fact: e.TaintCreated) -> None:
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
    """Through every instance built from these by recorded inputs, in any state (rule 7.3)."""
    level = list(seen)
    while level:
        level = [built for built in folding.view.instances_built_from(level) if built not in seen]
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
    folding.revert(ref, instance)


def manifest_removed(folding: Folding, fact: e.ManifestRemoved) -> None:
    """A removed instance keeps its state, because readers saw it live."""
    instances = folding.found(folding.view.instances_by_uuid(fact.uuids), fact.uuids, "instance")
    for instance in instances.values():
        instance.manifest_state = REMOVED


def removal_finished(folding: Folding, fact: e.RemovalFinished) -> None:
    instances = folding.found(folding.view.instances_by_uuid(fact.uuids), fact.uuids, "instance")
    for instance in instances.values():
        instance.cleared_at = folding.at
