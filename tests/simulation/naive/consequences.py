"""What follows from a command, until nothing changes: instances, wants, leases (rules 5.2, 6.4, 6.6, 6.10)."""

from __future__ import annotations

from databuild_dagster.model.states import InstanceState, WantState

from .derivatives import derive, keep
from .state import FAILING, Naive

_I, _W = InstanceState, WantState


def settle(naive: Naive) -> None:
    while any([_move_instances(naive), _move_wants(naive), _release(naive), keep(naive), derive(naive)]):
        pass
    for run in naive.open_runs():
        run.seen += [row for row in naive.refs.values() if row not in run.seen]
    _end_delegations(naive)


def _end_delegations(naive: Naive) -> None:
    """Rule 8.3: those to a build end with the ref, live or failed."""
    for (requester, ref), (given, outcome) in naive.delegations.items():
        state = naive.refs[ref].state
        if outcome == "waiting" and (state is _I.LIVE or state in FAILING):
            naive.delegations[requester, ref] = (given, "live" if state is _I.LIVE else "failed")


def cancel_job_runs(naive: Naive, refs: list[str]) -> None:
    """The job runs of these refs are canceled, if they have not ended."""
    for ref in refs:
        if naive.refs[ref].state is _I.BUILDING:
            for row in naive.outputs(ref):
                row.open()
    settle(naive)


def _move_instances(naive: Naive) -> bool:
    """Rule 6.6, until nothing moves."""
    moved = False
    for row in naive.refs.values():
        states = {naive.refs[item].state for item in row.missing}
        before = row.state
        if before is _I.UPSTREAM_BUILDING and states & FAILING:
            row.state = _I.UPSTREAM_FAILED
        elif (before is _I.UPSTREAM_BUILDING and states == {_I.LIVE}) or (
            before is _I.UPSTREAM_FAILED and not states & FAILING
        ):
            row.open()
        moved = moved or row.state is not before
    if moved:
        _move_instances(naive)
    return moved


def _move_wants(naive: Naive) -> bool:
    """Rule 5.2"""
    before = [want.state for want in naive.wants]
    for want in naive.wants:
        if want.is_open:
            want.state = _state_of([naive.refs[ref].state for ref in want.refs])
    return before != [want.state for want in naive.wants]


def _state_of(states: list[InstanceState | None]) -> WantState:
    if all(state is _I.LIVE for state in states):
        return _W.SUCCESSFUL
    for state, forced in (
        (_I.FAILED, _W.FAILED),
        (_I.UPSTREAM_FAILED, _W.UPSTREAM_FAILED),
        (_I.BUILDING, _W.BUILDING),
        (_I.UPSTREAM_BUILDING, _W.UPSTREAM_BUILDING),
    ):
        if state in states:
            return forced
    return _W.IDLE


def _release(naive: Naive) -> bool:
    """Rules 6.4, 6.10: a lease without an open want ends, unless its job run runs or builds another wanted ref."""
    released = [
        row
        for ref, row in naive.refs.items()
        if (row.state is _I.UPSTREAM_BUILDING and not naive.is_wanted(ref))
        or (row.state is _I.BUILDING and row.run.is_queued and not naive.is_needed(ref))
    ]
    for row in released:
        row.open()
    return bool(released)
