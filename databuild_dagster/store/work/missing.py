"""What waits for what within a unit of work."""

from __future__ import annotations

from collections.abc import Iterable

from databuild_dagster.store.schema import PREFIX
from databuild_dagster.store.work.builds import BuildWork
from databuild_dagster.store.work.row_sets import Lookup

_WAITERS = Lookup(f"SELECT ref_id, instance_id FROM {PREFIX}missing WHERE active = 1 AND", "ref_id")
_MISSING_OF = Lookup(f"SELECT instance_id, ref_id FROM {PREFIX}missing WHERE", "instance_id")
_ADD_MISSING = f"INSERT INTO {PREFIX}missing (instance_id, ref_id, active) VALUES (?, ?, 1)"
_END_WAITING = f"UPDATE {PREFIX}missing SET active = ? WHERE instance_id = ?"

LINKS = (_ADD_MISSING, _END_WAITING)


class MissingWork(BuildWork):
    """`model.view.Missed`."""

    def waiters(self, ref_ids: Iterable[int]) -> list[tuple[int, int]]:
        """Refs know how many wait for them: mostly nobody, and then there is nothing to ask."""
        return self._pairs(_WAITERS, [ref.id for ref in self._refs.ids(ref_ids).values() if ref.n_waiters])

    def missing_of(self, instance_ids: Iterable[int]) -> list[tuple[int, int]]:
        return self._pairs(_MISSING_OF, instance_ids)

    def add_missing(self, instance_id: int, ref_ids: Iterable[int]) -> None:
        missing = self._refs.ids(ref_ids)
        for ref in missing.values():
            ref.n_waiters += 1
        self._link(_ADD_MISSING, [(instance_id, ref_id) for ref_id in missing])

    def end_waiting(self, instance_id: int) -> None:
        for ref in self._refs.ids(ref_id for _, ref_id in self.missing_of([instance_id])).values():
            ref.n_waiters -= 1
        self._link(_END_WAITING, [(0, instance_id)])
