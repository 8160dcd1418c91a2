"""Pauses of refs and of whole assets (rule 6.13)."""

from __future__ import annotations

from collections.abc import Collection

from databuild_dagster.model.pauses import PauseInForce, in_force, names_of
from databuild_dagster.model.refs import Ref
from databuild_dagster.model.rows import PauseRow
from databuild_dagster.store.backends.base import Keys
from databuild_dagster.store.format import PREFIX
from databuild_dagster.store.queries.asking import MAX_SEQ, Asking
from databuild_dagster.store.selection import Selection
from databuild_dagster.store.work.pauses import ANY_PAUSE

_PAUSE = Selection(PauseRow, "p")
#: Recorded by a seq, and not ended by an event up to it.
_OPEN = f"SELECT {_PAUSE.columns} FROM {PREFIX}pauses p WHERE p.seq <= ? AND coalesce(p.ended_seq, {MAX_SEQ} + 1) > ?"


class PauseQueries(Asking):
    """Pauses in force, now or at an earlier event."""

    def paused(self, refs: Collection[Ref], now: float, *, seq: int = MAX_SEQ) -> dict[Ref, PauseInForce]:
        """Each of the refs that nothing may launch at a time, with its pause."""
        if seq == MAX_SEQ and not self._all(ANY_PAUSE):
            return {}
        sql = f"{_OPEN} AND p.ref IN (SELECT value FROM json_each(?))"
        pauses = _PAUSE.rows(self._all(sql, seq, seq, Keys(names_of(refs))))
        return in_force({pause.ref: pause for pause in pauses}, refs, now)

    def pauses_in_force(self, now: float) -> list[PauseRow]:
        """All, the oldest first."""
        return _PAUSE.rows(
            self._all(f"{_OPEN} AND p.ended_seq IS NULL AND p.until > ? ORDER BY p.seq, p.ref", MAX_SEQ, MAX_SEQ, now)
        )
