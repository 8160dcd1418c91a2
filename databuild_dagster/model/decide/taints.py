"""Saying that data is wrong, and taking that back (SPEC 7.1)."""

from __future__ import annotations

from databuild_dagster.model import commands as c
from databuild_dagster.model import events as e
from databuild_dagster.model.decide.context import Deciding
from databuild_dagster.model.errors import BeingBuilt, InvalidRequest, NotFound, NothingToTaint, NothingToUntaint
from databuild_dagster.model.states import TAINTABLE


def taint_partitions(command: c.TaintPartitions, deciding: Deciding) -> list[e.Fact]:
    """A list is all or nothing. Refused for what is being built, missing, or free to be built anyway."""
    if not command.refs:
        raise InvalidRequest(what="the list of refs", value=[], why="it names none")
    for ref, row in deciding.existing_refs(command.refs).items():
        if row is None or row.state is None or row.canonical_id is None:
            raise NothingToTaint(ref=ref, state="missing")
        if row.leased:
            instance = deciding.view.instances_by_id([row.canonical_id])[row.canonical_id]
            job_run = deciding.view.job_runs_by_id([instance.job_run_id])[instance.job_run_id]
            raise BeingBuilt(ref=ref, job_run=job_run.job_run_id)
        if row.state not in TAINTABLE:
            raise NothingToTaint(ref=ref, state=row.state.value)
    if command.taint_id is not None and deciding.view.taints([command.taint_id]):
        raise InvalidRequest(what="taint id", value=command.taint_id, why="a taint has it already")
    taint_id = command.taint_id or deciding.new_id()
    return [e.TaintCreated(taint_id=taint_id, refs=command.refs, reason=command.reason)]


def untaint_partitions(command: c.UntaintPartitions, deciding: Deciding) -> list[e.Fact]:
    """Refused when no canonical instance would change, saying why."""
    taint = deciding.view.taints([command.taint_id]).get(command.taint_id)
    if taint is None:
        raise NotFound(kind="taint", name=command.taint_id)
    if taint.canceled_at is not None:
        raise NothingToUntaint(taint_id=command.taint_id, why="it was canceled before")
    instances = deciding.view.instances_by_id(deciding.view.instances_of_taint(taint.id))
    refs = deciding.view.refs_by_id(instance.ref_id for instance in instances.values())
    why = []
    for instance in instances.values():
        ref = refs[instance.ref_id]
        if ref.canonical_id == instance.id and instance.was_live:
            return [e.TaintCanceled(taint_id=command.taint_id, reason=command.reason)]
        if ref.canonical_id == instance.id:
            why.append(f"{ref.ref} was never live, so there is nothing to bring back")
        elif ref.canonical_id is not None:
            replaced_by = deciding.view.instances_by_id([ref.canonical_id])[ref.canonical_id].uuid
            why.append(f"{ref.ref} was replaced by instance {replaced_by}")
    raise NothingToUntaint(taint_id=command.taint_id, why="; ".join(why[:3]))
