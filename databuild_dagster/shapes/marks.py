"""A word for the state of a partition, or of several, as calendars show it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from databuild_dagster.model.refs import Ref
from databuild_dagster.model.states import InstanceState
from databuild_dagster.store.queries.canonical import MarkedRef
from databuild_dagster.store.queries.queries import Queries

LIVE, EMPTY, STALE, TAINTED, PARTIAL = "live", "empty", "stale", "tainted", "partial"
BUILDING, WAITING, WANTED, MISSING = "building", "waiting", "wanted", "missing"
FAILED, UPSTREAM_FAILED = "failed", "upstream failed"

#: Every mark with its meaning, the worst first. A cell of several partitions has the worst mark among them.
MARKS: Final[Mapping[str, str]] = {
    FAILED: "its build failed for good",
    UPSTREAM_FAILED: "an input failed",
    TAINTED: "marked as wrong",
    STALE: "live, but an input was tainted or replaced since",
    WAITING: "waits for inputs or for its retry",
    BUILDING: "a job run builds it",
    WANTED: "wanted, and not begun",
    PARTIAL: "some of these partitions are live, the others are missing",
    MISSING: "nothing has built it",
    EMPTY: "live, on purpose without rows",
    LIVE: "good to read",
}
_WORST_FIRST: Final = tuple(MARKS)
_OF_STATE: Final[Mapping[InstanceState, str]] = {
    InstanceState.LIVE: LIVE,
    InstanceState.BUILDING: BUILDING,
    InstanceState.UPSTREAM_BUILDING: WAITING,
    InstanceState.UP_FOR_RETRY: WAITING,
    InstanceState.FAILED: FAILED,
    InstanceState.UPSTREAM_FAILED: UPSTREAM_FAILED,
    InstanceState.TAINTED: TAINTED,
}


def mark_of_state(state: InstanceState | None, *, is_wanted: bool) -> str:
    """The mark of a ref, as far as its state says."""
    if state is None:
        return WANTED if is_wanted else MISSING
    return _OF_STATE[state]


def marks_of(queries: Queries, refs: Iterable[Ref]) -> dict[Ref, str]:
    """The mark of each ref."""
    named = list(refs)
    marked = queries.canonical.marked(named)
    live = [found.uuid for found in marked if found.state is InstanceState.LIVE and found.uuid is not None]
    stale = queries.instances.stale(live) if live else set()
    return dict.fromkeys(named, MISSING) | {found.ref: _mark(found, stale) for found in marked}


def _mark(found: MarkedRef, stale: set[str]) -> str:
    if found.uuid in stale:
        return STALE
    if found.state is InstanceState.LIVE and found.manifest_state == "empty":
        return EMPTY
    return mark_of_state(found.state, is_wanted=found.is_wanted)


def mark_of_many(counts: Mapping[str, int]) -> str:
    """The mark of a cell that stands for several partitions."""
    marks = {mark for mark, n in counts.items() if n}
    if marks & {LIVE, EMPTY} and MISSING in marks and marks <= {LIVE, EMPTY, MISSING}:
        return PARTIAL
    return next((mark for mark in _WORST_FIRST if mark in marks), MISSING)
