"""Pauses of a unit of work (rule 6.13)."""

from __future__ import annotations

from collections.abc import Iterable

from databuild_dagster.model.refs import Ref
from databuild_dagster.model.rows import PauseRow, RefRow
from databuild_dagster.model.states import InstanceState
from databuild_dagster.store.backends.base import Keys
from databuild_dagster.store.format import PREFIX
from databuild_dagster.store.work.builds import BuildWork
from databuild_dagster.store.work.row_sets import Lookup

_COLUMNS = ", ".join(PauseRow._fields)
_OPEN = f"SELECT {_COLUMNS} FROM {PREFIX}pauses WHERE ended_seq IS NULL AND"
#: Mostly there is none, and this takes a fifth of the time of a query with a list of names.
ANY_PAUSE = f"SELECT 1 FROM {PREFIX}pauses WHERE ended_seq IS NULL LIMIT 1"
_OF_NAMES, _OF_DATASETS = Lookup(_OPEN, "ref"), Lookup(_OPEN, "dataset_id")
#: As the index of refs that are being built has it.
_BEING_BUILT = (
    f"due = 0 AND state = '{InstanceState.BUILDING}' AND dataset_id IN (SELECT value FROM json_each(?)) ORDER BY id"
)
_ADD_PAUSE = f"INSERT INTO {PREFIX}pauses ({_COLUMNS}) VALUES ({', '.join('?' * len(PauseRow._fields))})"
# Many events may be written at once, and additions first.
_END_PAUSE = f"UPDATE {PREFIX}pauses SET ended_seq = ?, ended_at = ? WHERE ref = ? AND seq < ? AND ended_seq IS NULL"

LINKS = (_ADD_PAUSE, _END_PAUSE)


class PauseWork(BuildWork):
    """`model.view.Paused`."""

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
