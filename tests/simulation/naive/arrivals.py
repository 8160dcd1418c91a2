"""Data that comes from outside, such as files that another program wrote (rules 4.2, 6.6)."""

from __future__ import annotations

from databuild_dagster.model import errors
from databuild_dagster.model.states import InstanceState

from .consequences import settle
from .state import Answer, Naive, NaiveRef
from .taints import held


def arrive(naive: Naive, refs: tuple[str, ...], origin: str, seen: dict[str, NaiveRef]) -> Answer:
    """Each ref has a new live instance, unless its last data came from there. `seen` is canonical, or nothing arrives."""
    for ref in refs:
        if naive.is_leased(ref):
            return held(naive.refs[ref].state)
    if any(naive.refs[ref] is not row for ref, row in seen.items()):
        return errors.CanonicalMoved
    for ref in refs:
        if naive.origins.get(ref) == origin:
            continue
        naive.refs[ref] = NaiveRef(InstanceState.LIVE, was_live=True)
        naive.history[ref].append(naive.refs[ref])
        naive.origins[ref] = origin
    settle(naive)
    return None
