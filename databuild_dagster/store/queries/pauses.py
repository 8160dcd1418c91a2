"""Pauses of refs and of whole assets (rule 6.13)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from databuild_dagster.model.pauses import in_force, names_of
from databuild_dagster.model.refs import Ref
from databuild_dagster.model.rows import PauseRow
from databuild_dagster.store.backends.base import Keys
from databuild_dagster.store.format import PREFIX
from databuild_dagster.store.queries.asking import Asking
from databuild_dagster.store.selection import Selection


class OpenPauses(NamedTuple):
    """The pauses of one command that are in force, as one line of a list."""

    #: The asset, with the number of its named partitions, or None for all.
    asset: str
    n_partitions: int | None
    first: Ref
    last: Ref
    reason: str
    actor: str
    paused_at: float
    until: float


_PAUSE = Selection(PauseRow, "p")
_GROUP = Selection(
    OpenPauses,
    "p",
    asset="d.asset",
    n_partitions="CASE WHEN p.is_whole = 1 THEN NULL ELSE count(*) END",
    first="min(p.ref)",
    last="max(p.ref)",
)


class PauseQueries(Asking):
    """Pauses that no resume has ended and whose time has not passed."""

    def paused(self, refs: Iterable[Ref], now: float) -> dict[Ref, PauseRow]:
        """Each of the refs that nothing may launch now, with its pause; in one query."""
        asked = list(refs)
        sql = f"""
            SELECT {_PAUSE.columns} FROM {PREFIX}pauses p
            WHERE p.ref IN (SELECT value FROM json_each(?)) AND p.ended_seq IS NULL"""
        return in_force({pause.ref: pause for pause in _PAUSE.rows(self._all(sql, Keys(names_of(asked))))}, asked, now)

    def open_pauses(self, now: float) -> list[OpenPauses]:
        """All, the oldest first; of one command one line for each asset."""
        sql = f"""
            SELECT {_GROUP.columns} FROM {PREFIX}pauses p JOIN {PREFIX}datasets d ON d.id = p.dataset_id
            WHERE p.ended_seq IS NULL AND p.until > ?
            GROUP BY p.seq, d.asset, p.is_whole, p.reason, p.actor, p.paused_at, p.until ORDER BY p.seq, d.asset"""
        return _GROUP.rows(self._all(sql, now))

    def is_anything_paused(self) -> bool:
        """Whether any pause may be in force."""
        return bool(self._all(f"SELECT 1 FROM {PREFIX}pauses WHERE ended_seq IS NULL LIMIT 1"))
