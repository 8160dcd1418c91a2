"""Taints of instances (rules 7)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from databuild_dagster.model.refs import Ref
from databuild_dagster.model.states import InstanceState
from databuild_dagster.store.backends.base import Keys
from databuild_dagster.store.format import PREFIX
from databuild_dagster.store.queries.asking import Asking, Selection, grouped


class Taint(NamedTuple):
    """A taint of an instance."""

    taint_id: str
    reason: str
    actor: str
    created_at: float
    canceled_at: float | None


_TAINT = Selection(Taint, "t", canceled_at="x.canceled_at")


class TaintQueries(Asking):
    """Taints of instances and of refs."""

    def taints_of(self, uuid: str) -> list[Taint]:
        sql = f"""
            SELECT {_TAINT.columns} FROM {PREFIX}taints t
            JOIN {PREFIX}taint_instances x ON x.taint_id = t.id JOIN {PREFIX}instances i ON i.id = x.instance_id
            WHERE i.uuid = ? ORDER BY t.id"""
        return _TAINT.rows(self._all(sql, uuid))

    def taints_in_force(self, uuids: Iterable[str]) -> dict[str, tuple[Taint, ...]]:
        """The taints in force of many instances, by uuid."""
        sql = f"""
            SELECT i.uuid, {_TAINT.columns} FROM {PREFIX}instances i
            JOIN {PREFIX}taint_instances x ON x.instance_id = i.id JOIN {PREFIX}taints t ON t.id = x.taint_id
            WHERE i.uuid IN (SELECT value FROM json_each(?)) AND x.canceled_at IS NULL ORDER BY t.id"""
        return grouped(_TAINT.by(self._all(sql, Keys(uuids))))

    def taints_to_show(self, refs: Iterable[Ref]) -> dict[Ref, Taint]:
        """The newest taint in force of each ref that is not live: of its canonical instance if that is tainted, else of the
        last one that was live. Other refs are left out."""
        sql = f"""
            WITH RECURSIVE chain(ref, state, id, found) AS (
                SELECT r.ref, r.state, i.id, CASE WHEN i.state = '{InstanceState.TAINTED}' THEN 1 ELSE i.was_live END FROM {PREFIX}refs r
                JOIN {PREFIX}instances i ON i.id = r.last_id WHERE r.ref IN (SELECT value FROM json_each(?))
                UNION ALL
                SELECT chain.ref, chain.state, p.id, p.was_live FROM chain JOIN {PREFIX}instances i ON i.id = chain.id
                JOIN {PREFIX}instances p ON p.id = i.previous_id WHERE found = 0
            )
            SELECT chain.ref, {_TAINT.columns} FROM chain
            JOIN {PREFIX}taint_instances x ON x.instance_id = chain.id JOIN {PREFIX}taints t ON t.id = x.taint_id
            WHERE found = 1 AND chain.state <> '{InstanceState.LIVE}' AND x.canceled_at IS NULL ORDER BY t.id"""
        return dict(_TAINT.by(self._all(sql, Keys(refs))))

    def tainted_by(self, taint_id: str) -> tuple[Ref, ...]:
        """The refs whose canonical instance has, or had, a taint."""
        sql = f"""
            SELECT r.ref FROM {PREFIX}taints t JOIN {PREFIX}taint_instances x ON x.taint_id = t.id
            JOIN {PREFIX}instances i ON i.id = x.instance_id JOIN {PREFIX}refs r ON r.id = i.ref_id AND r.canonical_id = i.id
            WHERE t.taint_id = ? ORDER BY r.ref"""
        return tuple(ref for (ref,) in self._all(sql, taint_id))

    def tainted_refs(self, assets: Sequence[str], most: int) -> dict[str, tuple[int, tuple[Ref, ...]]]:
        """The number of tainted refs of each dataset, and the first of them; by the index of tainted refs."""
        sql = f"""
            SELECT d.asset, d.id, count(*) FROM {PREFIX}refs r JOIN {PREFIX}datasets d ON d.id = r.dataset_id
            WHERE r.state = '{InstanceState.TAINTED}' AND d.asset IN (SELECT value FROM json_each(?)) GROUP BY d.id"""
        named = f"SELECT ref FROM {PREFIX}refs WHERE state = '{InstanceState.TAINTED}' AND dataset_id = ? ORDER BY ref LIMIT ?"
        found = {
            asset: (count, tuple(ref for (ref,) in self._all(named, dataset_id, most)))
            for asset, dataset_id, count in self._all(sql, Keys(assets))
        }
        return {asset: found.get(asset, (0, ())) for asset in assets}

    def tainted_at_birth(self, uuids: Iterable[str]) -> set[str]:
        """Those of these instances that became live and tainted in one event (rule 7.3)."""
        sql = f"""
            SELECT DISTINCT i.uuid FROM {PREFIX}instances i JOIN {PREFIX}history h ON h.entity_id = i.id AND h.kind = 'instances'
            JOIN {PREFIX}history n ON n.entity_id = i.id AND n.kind = 'instances' AND n.seq = h.seq AND n.place > h.place
            WHERE i.uuid IN (SELECT value FROM json_each(?))
              AND h.to_state = '{InstanceState.LIVE}' AND h.from_state IS NOT '{InstanceState.TAINTED}'
              AND n.to_state = '{InstanceState.TAINTED}'"""
        return {uuid for (uuid,) in self._all(sql, Keys(uuids))}
