"""Taints, lineage and the canonical pointer of a unit of work."""

from __future__ import annotations

from collections.abc import Iterable
from operator import itemgetter

from databuild_dagster.model.rows import TaintRow
from databuild_dagster.model.states import InstanceState
from databuild_dagster.store.backends.base import Keys
from databuild_dagster.store.format import BITS, PREFIX
from databuild_dagster.store.work.row_sets import Lookup, Rows, Shape, Tables

TAINTS = Shape(TaintRow, "taint_id")
_INSTANCES_OF_TAINT = Lookup(
    f"SELECT taint_id, instance_id FROM {PREFIX}taint_instances WHERE canceled_at IS NULL AND", "taint_id"
)
_TAINTS_OF_INSTANCE = Lookup(
    f"SELECT instance_id, taint_id FROM {PREFIX}taint_instances WHERE canceled_at IS NULL AND", "instance_id"
)
_BUILT_FROM = Lookup(f"SELECT input_id, instance_id FROM {PREFIX}instance_inputs WHERE", "input_id")
_INPUTS_OF = Lookup(f"SELECT instance_id, input_id FROM {PREFIX}instance_inputs WHERE", "instance_id")
#: An instance is canonical from its creation on (rule 4.2), and its id begins with the seq of that.
POINTINGS = f"""
WITH RECURSIVE chain(ref_id, id) AS (
    SELECT r.id, r.last_id FROM {PREFIX}refs r
    WHERE r.last_id IS NOT NULL AND r.id IN (SELECT value FROM json_each(?))
    UNION ALL
    SELECT chain.ref_id, p.previous_id FROM chain JOIN {PREFIX}instances p ON p.id = chain.id
    WHERE p.previous_id IS NOT NULL
)
SELECT ref_id, id >> {BITS}, id FROM chain
UNION ALL
SELECT ref_id, seq, instance_id FROM {PREFIX}reverts WHERE ref_id IN (SELECT value FROM json_each(?))"""
#: A compacted instance names the first with its rows, after any number of compactions.
_SAME_AS = f"""
WITH roots(id) AS (
    SELECT coalesce(same_as_id, id) FROM {PREFIX}instances WHERE id IN (SELECT value FROM json_each(?))
)
SELECT id FROM roots UNION SELECT i.id FROM roots JOIN {PREFIX}instances i ON i.same_as_id = roots.id"""
_MOVED_BY = (
    f"SELECT entity_id, max(seq) FROM {PREFIX}history WHERE kind = 'instances' "
    "AND entity_id IN (SELECT value FROM json_each(?)) GROUP BY entity_id"
)
#: An open job run holds the lease of each of its refs, and refs that are being built have an index.
OLDEST_OPEN = (
    f"SELECT min(i.job_run_id) FROM {PREFIX}refs r JOIN {PREFIX}instances i ON i.id = r.canonical_id "
    f"WHERE r.due = 0 AND r.state = '{InstanceState.BUILDING}'"
)
_ADD_TAINT = f"INSERT INTO {PREFIX}taint_instances (taint_id, instance_id) VALUES (?, ?)"
_CANCEL_TAINT = f"UPDATE {PREFIX}taint_instances SET canceled_at = ? WHERE taint_id = ? AND instance_id = ?"
_ADD_REVERT = f"INSERT INTO {PREFIX}reverts (ref_id, seq, instance_id) VALUES (?, ?, ?)"
_ADD_INPUT = f"INSERT INTO {PREFIX}instance_inputs (instance_id, ref_id, input_id) VALUES (?, ?, ?)"

LINKS = (_ADD_TAINT, _CANCEL_TAINT, _ADD_REVERT, _ADD_INPUT)


class TaintWork(Tables):
    """`model.view.Tainted`."""

    _taints = Rows(TAINTS)

    def taints(self, taint_ids: Iterable[str]) -> dict[str, TaintRow]:
        return self._taints.keys(taint_ids)

    def taints_by_id(self, ids: Iterable[int]) -> dict[int, TaintRow]:
        return self._taints.ids(ids)

    def instances_of_taint(self, taint_id: int) -> list[int]:
        return [instance_id for _, instance_id in self._pairs(_INSTANCES_OF_TAINT, [taint_id])]

    def taints_of_instances(self, instance_ids: Iterable[int]) -> list[tuple[int, int]]:
        return self._pairs(_TAINTS_OF_INSTANCE, instance_ids)

    def add_taint_links(self, taint_id: int, instance_ids: Iterable[int]) -> None:
        self._link(_ADD_TAINT, ((taint_id, instance_id) for instance_id in instance_ids))

    def cancel_taint_links(self, pairs: Iterable[tuple[int, int]], at: float) -> None:
        """Takes (instance, taint) pairs."""
        self._link(_CANCEL_TAINT, [(at, taint_id, instance_id) for instance_id, taint_id in pairs])

    def instances_built_from(self, instance_ids: Iterable[int]) -> list[int]:
        return sorted({instance_id for _, instance_id in self._linked(_BUILT_FROM, instance_ids)})

    def instances_same_as(self, instance_ids: Iterable[int]) -> list[int]:
        self.flush()
        return sorted(found for (found,) in self.connection.execute(_SAME_AS, (Keys(instance_ids),)))

    def inputs_of(self, instance_ids: Iterable[int]) -> list[int]:
        return sorted({input_id for _, input_id in self._linked(_INPUTS_OF, instance_ids)})

    def add_inputs(self, instance_id: int, inputs: Iterable[tuple[int, int]]) -> None:
        self._link(_ADD_INPUT, ((instance_id, ref_id, input_id) for ref_id, input_id in inputs))

    def add_revert(self, ref_id: int, seq: int, instance_id: int) -> None:
        self._link(_ADD_REVERT, [(ref_id, seq, instance_id)])

    def pointings(self, ref_ids: Iterable[int]) -> list[tuple[int, int, int]]:
        self.flush()
        refs = Keys(ref_ids)
        return sorted(self.connection.execute(POINTINGS, (refs, refs)), key=itemgetter(0, 1))

    def moved_by(self, instance_ids: Iterable[int]) -> dict[int, int]:
        self.flush()
        return dict(self.connection.execute(_MOVED_BY, (Keys(instance_ids),)))

    def building_since(self) -> int | None:
        self.flush()
        ((oldest,),) = self.connection.execute(OLDEST_OPEN)
        return None if oldest is None else int(oldest) >> BITS
