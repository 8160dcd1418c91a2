"""The recorded facts of refs for reports of gaps: a year of lots in one query (rule 10.7)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

from databuild_dagster.model.refs import Ref
from databuild_dagster.model.states import InstanceState
from databuild_dagster.store.backends.base import Keys
from databuild_dagster.store.format import PREFIX
from databuild_dagster.store.queries.asking import Asking
from databuild_dagster.store.selection import Selection


class Recorded(NamedTuple):
    """The recorded facts of a ref for a gap report. A ref that no event names has none."""

    ref: Ref
    #: The state of its canonical instance, None when it is missing; the two fields below are of that instance too.
    state: InstanceState | None
    manifest_state: str | None
    retry_at: float | None
    n_open_wants: int
    #: The first of its open wants was recorded then, and the last one's TTL ends then.
    wanted_since: float
    wanted_until: float


class RecordedOfDataset(NamedTuple):
    """Refs of one dataset: the live ones, which are most, with the state of their manifest, and the others."""

    live: dict[Ref, str | None]
    others: dict[Ref, Recorded]


_ROW = Selection(Recorded, "r", manifest_state="i.manifest_state")
_RECORDED = f"""
SELECT {_ROW.columns}
FROM {PREFIX}refs r LEFT JOIN {PREFIX}instances i ON i.id = r.canonical_id WHERE """


_STATED = _ROW.places("ref", "state", "manifest_state")
_LIVE = InstanceState.LIVE.value


def _parted(answer: list[tuple[Any, ...]]) -> RecordedOfDataset:
    """Most refs are live, and for those a row of their own would cost more than the query."""
    live, others = {}, []
    ref, state, manifest_state = _STATED
    for row in answer:
        if row[state] == _LIVE:
            live[row[ref]] = row[manifest_state]
        else:
            others.append(row)
    return RecordedOfDataset(live, {recorded.ref: recorded for recorded in _ROW.rows(others)})


class GapQueries(Asking):
    """Refs with recorded facts."""

    def recorded(self, refs: Iterable[Ref]) -> dict[Ref, Recorded]:
        """The recorded facts of each ref; a ref that no event names is left out."""
        answer = self._all(_RECORDED + "r.ref IN (SELECT value FROM json_each(?))", Keys(refs))
        return {recorded.ref: recorded for recorded in _ROW.rows(answer)}

    def recorded_between(self, first: str, last: str) -> RecordedOfDataset:
        """The recorded facts of every ref from one text to another, both included (rule 10.7)."""
        return _parted(self._all(_RECORDED + "r.ref >= ? AND r.ref <= ?", first, last))
