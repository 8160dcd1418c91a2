"""The dry run of an action: the command is handled and rolled back, and what would have moved is counted."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final, TypedDict

from databuild_dagster.engine.engine import Preview
from databuild_dagster.store.queries.events import Change

#: Partitions, wants and job runs that a line names.
MAX_NAMED: Final = 20
_KINDS: Final = {"instances": "partition", "wants": "want", "job_runs": "job run"}


class MoveShape(TypedDict):
    """Partitions, wants or job runs that would go from one state to another; `before` is null for new ones."""

    kind: str
    before: str | None
    after: str
    n: int
    #: The first of them, by name.
    first: list[str]


class RehearsalShape(TypedDict):
    """What an action would do now. Nothing was recorded."""

    action: str
    #: Each one sentence.
    would: list[str]
    moves: list[MoveShape]


def moves_of(preview: Preview) -> list[MoveShape]:
    """The moves of a preview, from the first state of each thing to its last one."""
    return grouped_moves(preview.changes)


def grouped_moves(changes: Iterable[Change]) -> list[MoveShape]:
    ends: dict[tuple[str, str], tuple[str | None, str]] = {}
    for change in changes:
        key = (change.kind, change.entity)
        before = ends[key][0] if key in ends else change.before
        ends[key] = before, change.after
    groups: dict[tuple[str, str | None, str], list[str]] = {}
    for (kind, entity), (before, after) in ends.items():
        if before != after:
            groups.setdefault((_KINDS[kind], before, after), []).append(entity)
    return [_move(*group, names) for group, names in groups.items()]


def _move(kind: str, before: str | None, after: str, names: Sequence[str]) -> MoveShape:
    return {"kind": kind, "before": before, "after": after, "n": len(names), "first": sorted(names)[:MAX_NAMED]}
