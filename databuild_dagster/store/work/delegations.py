"""Delegations and pauses of a unit of work (rules 6.13, 8)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from databuild_dagster.model.coordination import Answer, DelegationOutcome
from databuild_dagster.model.refs import Ref
from databuild_dagster.model.rows import DelegationRow, PauseRow, RefRow
from databuild_dagster.model.states import InstanceState
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

_PAUSE_COLUMNS = ", ".join(PauseRow._fields)
_OPEN = f"SELECT {_PAUSE_COLUMNS} FROM {PREFIX}pauses WHERE ended_seq IS NULL AND"
#: Mostly there is none, and this takes a fifth of the time of a query with a list of names.
ANY_PAUSE = f"SELECT 1 FROM {PREFIX}pauses WHERE ended_seq IS NULL LIMIT 1"
_OF_NAMES, _OF_DATASETS = Lookup(_OPEN, "ref"), Lookup(_OPEN, "dataset_id")
#: As the index of refs that are being built has it.
_BEING_BUILT = (
    f"due = 0 AND state = '{InstanceState.BUILDING}' AND dataset_id IN (SELECT value FROM json_each(?)) ORDER BY id"
)
_ADD_PAUSE = f"INSERT INTO {PREFIX}pauses ({_PAUSE_COLUMNS}) VALUES ({', '.join('?' * len(PauseRow._fields))})"
# Many events may be written at once, and additions first.
_END_PAUSE = f"UPDATE {PREFIX}pauses SET ended_seq = ?, ended_at = ? WHERE ref = ? AND seq < ? AND ended_seq IS NULL"

LINKS = (_PUT_DELEGATION, _TAKE_DELEGATION, _END_DELEGATION, _ADD_PAUSE, _END_PAUSE)


class DelegationWork(BuildWork):
    """`model.view.Delegated` and `model.view.Paused`."""

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

    def pauses(self, names: Iterable[Ref]) -> dict[Ref, PauseRow]:
        if self._links:
            self._flush_links()
        if self.connection.execute(ANY_PAUSE).fetchone() is None:
            return {}
        found = map(PauseRow._make, self._linked(_OF_NAMES, names))
        return {pause.ref: pause for pause in found}

    def pauses_of_datasets(self, dataset_ids: Iterable[int]) -> list[PauseRow]:
        return sorted(map(PauseRow._make, self._linked(_OF_DATASETS, dataset_ids)))

    def refs_being_built(self, dataset_ids: Iterable[int]) -> list[RefRow]:
        self.flush()
        return self._refs.fetch(_BEING_BUILT, Keys(dataset_ids))

    def add_pauses(self, rows: Iterable[PauseRow]) -> None:
        self._link(_ADD_PAUSE, rows)

    def end_pauses(self, names: Iterable[Ref], at: float) -> None:
        self._link(_END_PAUSE, [(self.seq, at, name, self.seq) for name in names])
