"""Delegations of a unit of work."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from databuild_dagster.model.coordination import Answer, DelegationOutcome
from databuild_dagster.model.rows import DelegationRow
from databuild_dagster.store.backends.base import Keys
from databuild_dagster.store.format import PREFIX
from databuild_dagster.store.work.builds import BuildWork
from databuild_dagster.store.work.row_sets import Lookup

_DELEGATION_COLUMNS = ", ".join(DelegationRow._fields)
_PUT_DELEGATION = (
    f"INSERT INTO {PREFIX}delegations ({_DELEGATION_COLUMNS}) VALUES ({', '.join('?' * len(DelegationRow._fields))}) "
    "ON CONFLICT (requester, ref_id) DO UPDATE SET "
    + ", ".join(f"{name} = excluded.{name}" for name in DelegationRow._fields[2:])
)
_END_DELEGATION = (
    f"UPDATE {PREFIX}delegations SET outcome = ?, served_id = ?, ended_at = ?, reason = ? "
    "WHERE requester = ? AND ref_id = ?"
)
_TAKE_DELEGATION = f"UPDATE {PREFIX}delegations SET kind = '{Answer.BUILD.value}' WHERE requester = ? AND ref_id = ?"
_DELEGATIONS = (
    f"SELECT requester, ref_id, outcome FROM {PREFIX}delegations "
    "WHERE requester IN (SELECT value FROM json_each(?)) AND ref_id IN (SELECT value FROM json_each(?))"
)
_WAITING_FOR = Lookup(
    f"SELECT ref_id, requester FROM {PREFIX}delegations WHERE outcome = '{DelegationOutcome.WAITING.value}' AND",
    "ref_id",
)
_WAITING_OF = f"SELECT ref_id FROM {PREFIX}delegations WHERE requester = ? AND outcome = ?"

LINKS = (_PUT_DELEGATION, _TAKE_DELEGATION, _END_DELEGATION)


class DelegationWork(BuildWork):
    """`model.view.Delegated`."""

    #: Outcomes of the delegations of (requester, ref) that were loaded; None for no delegation.
    _outcomes: dict[tuple[str, int], str | None]

    def meet_delegations(self, asked: Mapping[str, Iterable[int]]) -> None:
        known = self._outcomes
        pairs = [pair for who, ids in asked.items() for ref_id in ids if (pair := (who, ref_id)) not in known]
        if not pairs:
            return
        known.update(dict.fromkeys(pairs))
        requesters, refs = Keys({who for who, _ in pairs}), Keys({ref_id for _, ref_id in pairs})
        for who, ref_id, outcome in self.connection.execute(_DELEGATIONS, (requesters, refs)):
            known[who, ref_id] = outcome

    def delegations(self, requester: str, ref_ids: Iterable[int]) -> dict[int, str]:
        wanted = list(ref_ids)
        self.meet_delegations({requester: wanted})
        known = self._outcomes
        return {ref_id: outcome for ref_id in wanted if (outcome := known[requester, ref_id]) is not None}

    def waiting_delegations(self, ref_ids: Iterable[int]) -> list[tuple[int, str]]:
        """Refs keep the number of their delegations; mostly it is 0, and no query is needed."""
        return sorted(self._linked(_WAITING_FOR, [ref.id for ref in self._refs.ids(ref_ids).values() if ref.n_joined]))

    def waiting_delegations_of(self, requester: str) -> list[int]:
        self._flush_links()
        found = self.connection.execute(_WAITING_OF, (requester, DelegationOutcome.WAITING.value))
        return sorted(ref_id for (ref_id,) in found)

    def put_delegations(self, rows: Iterable[DelegationRow]) -> None:
        """The end of an earlier delegation is written first, because this one replaces it."""
        if _END_DELEGATION in self._links:
            self._flush_links()
        put = list(rows)
        self._outcomes.update({(row.requester, row.ref_id): row.outcome for row in put})
        self._link(_PUT_DELEGATION, put)

    def take_delegations(self, pairs: Iterable[tuple[str, int]]) -> None:
        self._link(_TAKE_DELEGATION, pairs)

    def end_delegations(self, ends: Iterable[tuple[str, int | None, float, str, str, int]]) -> None:
        ended = list(ends)
        self._outcomes.update({(who, ref_id): outcome for outcome, _, _, _, who, ref_id in ended})
        self._link(_END_DELEGATION, ended)
