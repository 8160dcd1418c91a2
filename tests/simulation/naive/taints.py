"""Taints and reverts (rules 7)."""

from __future__ import annotations

from databuild_dagster.model import errors
from databuild_dagster.model.states import InstanceState, WantState

from .consequences import settle
from .state import FAILING, LEASED, Answer, Naive, NaiveRef

_I = InstanceState


def taint(naive: Naive, refs: tuple[str, ...], taint: str, *, downstream: bool) -> Answer:
    """Rules 7.1, 7.3"""
    for state in (naive.refs[ref].state for ref in refs):
        if state in LEASED:
            return held(state)
        if state not in {_I.LIVE, _I.TAINTED, *FAILING}:
            return errors.NothingToTaint
    _cover(naive, [naive.refs[ref] for ref in refs], taint, downstream=downstream)
    return None


def held(state: InstanceState | None) -> type[errors.BeingBuilt]:
    """The refusal of a command about a ref with such a lease."""
    return errors.WaitsForInputs if state is _I.UPSTREAM_BUILDING else errors.BeingBuilt


def taint_instances(naive: Naive, instances: list[NaiveRef], taint: str, *, downstream: bool) -> Answer:
    """Rule 7.3: any build that was live once."""
    if not all(row.was_live for row in instances):
        return errors.InvalidRequest
    _cover(naive, instances, taint, downstream=downstream)
    return None


def taint_seen(naive: Naive, instances: list[NaiveRef], taint: str, *, downstream: bool) -> bool:
    """What a check has read is tainted where it, or equal rows, are live and canonical. Whether anything is."""
    roots = [row.root for row in instances]
    marked = [row for row in naive.refs.values() if row.state is _I.LIVE and row.root in roots]
    if marked:
        _cover(naive, marked, taint, downstream=downstream)
    return bool(marked)


def _cover(naive: Naive, named: list[NaiveRef], taint: str, *, downstream: bool) -> None:
    covered = list(named)
    for row in covered:
        row.taints.add(taint)
        if downstream:
            naive.extending.add(taint)
            covered += [
                other
                for other in naive.instances()
                if (row in other.inputs or other.root is row.root) and other not in covered
            ]
    for ref, row in naive.refs.items():
        if row in named or (row in covered and row.state is _I.LIVE):
            if row.state is _I.LIVE:
                _open_wants(naive, ref)
            row.state = _I.TAINTED
            row.forget()
    settle(naive)


def _open_wants(naive: Naive, ref: str) -> None:
    """Rule 5.3"""
    for want in naive.wants:
        if (
            want.state is WantState.SUCCESSFUL
            and ref in want.refs
            and naive.now < want.expires_at
            and not want.kept_for
        ):
            want.state, want.was_met = WantState.IDLE, True


def untaint(naive: Naive, taint: str) -> Answer:
    """Rule 7.1: as long as the taint acts."""
    carrying = [row for row in naive.instances() if taint in row.taints]
    acts = any(row.was_live and row in naive.refs.values() for row in carrying)
    if taint in naive.extending:
        acts = acts or any(row.was_live and row in run.seen for run in naive.open_runs() for row in carrying)
    if not acts:
        return errors.NothingToUntaint
    for row in carrying:
        row.taints.remove(taint)
        if row in naive.refs.values() and row.was_live and not row.taints and row.state is _I.TAINTED:
            row.state = _I.LIVE
    settle(naive)
    return None


def revert(naive: Naive, ref: str, at: int, *, force: bool) -> Answer:
    """Rule 7.4, to one of the instances of the ref."""
    instance = naive.history[ref][at]
    if instance is naive.refs[ref]:
        return errors.AlreadyCanonical
    if naive.is_leased(ref):
        return held(naive.refs[ref].state)
    if not instance.was_live:
        return errors.CannotRevert
    if not force and any(item.taints & naive.extending for item in instance.inputs):
        return errors.CannotRevert
    naive.refs[ref] = instance
    instance.state = _I.LIVE
    instance.forget()
    instance.taints.clear()
    settle(naive)
    return None
