"""Registered datasets and arcs, how many of their refs are in which state, what woke arcs, and the inputs of their lots that got
new data since (rule 10.5).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from databuild_dagster.model.datasets import DatasetSpec, dataset_from
from databuild_dagster.model.errors import UnknownAsset
from databuild_dagster.model.refs import Ref
from databuild_dagster.model.states import InstanceState
from databuild_dagster.store.backends.base import Keys
from databuild_dagster.store.format import PREFIX
from databuild_dagster.store.queries.asking import Asking, Selection


class ArcView(NamedTuple):
    """An arc in force, and the event up to which it has been followed."""

    asset: str
    seq: int
    #: The registration by which it is in force.
    since: int


_ARC = Selection(ArcView, "a")


class Firing(NamedTuple):
    """The newest source instance that woke an arc."""

    arc: str
    ref: Ref
    uuid: str
    #: The time of its data; None for an instance that is not live.
    live_at: float | None
    #: The event that recorded the firing.
    seq: int


class LateInput(NamedTuple):
    """An input that got new data after an instance was built from its old data."""

    #: The instance with the old data.
    built_ref: Ref
    built_uuid: str
    built_at: float
    #: The input, with its new instance.
    ref: Ref
    uuid: str
    arrived_at: float


_FIRING = Selection(Firing, "f", arc="a.asset", ref="r.ref", uuid="i.uuid", live_at="i.live_at")
_LATE = Selection(
    LateInput,
    "n",
    built_ref="b.ref",
    built_uuid="i.uuid",
    built_at="i.live_at",
    ref="r.ref",
    arrived_at="n.live_at",
)


class DatasetQueries(Asking):
    """Datasets and arcs."""

    def dataset(self, asset: str) -> DatasetSpec | None:
        rows = self._all(f"SELECT spec FROM {PREFIX}datasets WHERE asset = ? AND removed = 0", asset)
        return dataset_from(rows[0][0]) if rows else None

    def known_dataset(self, asset: str) -> DatasetSpec:
        """Raises `UnknownAsset`, with near names."""
        found = self.dataset(asset)
        if found is None:
            raise UnknownAsset(asset=asset, names=[spec.asset for spec in self.datasets().values()])
        return found

    def datasets(self, location: str | None = None) -> dict[int, DatasetSpec]:
        """Registered datasets by row id, of one location or of all."""
        sql = f"SELECT id, spec FROM {PREFIX}datasets WHERE removed = 0 AND (CAST(? AS TEXT) IS NULL OR location = ?) ORDER BY id"
        return {row_id: dataset_from(spec) for row_id, spec in self._all(sql, location, location)}

    def arcs(self) -> list[ArcView]:
        """The arcs in force, in the order of their registration (rule 10.5)."""
        sql = f"SELECT {_ARC.columns} FROM {PREFIX}arcs a WHERE removed = 0 ORDER BY id"
        return _ARC.rows(self._all(sql))

    def is_arc(self, asset: str) -> bool:
        """Whether an asset is an arc in force."""
        sql = f"""
            SELECT 1 FROM {PREFIX}arcs a JOIN {PREFIX}datasets d ON d.asset = a.asset
            WHERE a.asset = ? AND a.removed = 0 AND d.removed = 0"""
        return bool(self._all(sql, asset))

    def ref_counts(self) -> list[tuple[str, str, int]]:
        """(asset, canonical state, how many refs), the missing ones left out. Looks at every ref."""
        sql = f"""
            SELECT d.asset, r.state, count(*) FROM {PREFIX}refs r JOIN {PREFIX}datasets d ON d.id = r.dataset_id
            WHERE r.state IS NOT NULL GROUP BY d.asset, r.state ORDER BY d.asset, r.state"""
        return [(asset, state, n) for asset, state, n in self._all(sql)]

    def last_firings(self, arcs: Iterable[str]) -> dict[str, Firing]:
        """The newest firing of each of these arcs; an arc that never fired is left out."""
        sql = f"""
            SELECT {_FIRING.columns} FROM {PREFIX}arcs a JOIN {PREFIX}arc_firings f ON f.arc_id = a.id AND f.instance_id = (
                SELECT x.instance_id FROM {PREFIX}arc_firings x WHERE x.arc_id = a.id ORDER BY x.instance_id DESC LIMIT 1)
            JOIN {PREFIX}instances i ON i.id = f.instance_id JOIN {PREFIX}refs r ON r.id = i.ref_id
            WHERE a.asset IN (SELECT value FROM json_each(?))"""
        return {firing.arc: firing for firing in _FIRING.rows(self._all(sql, Keys(arcs)))}

    def late_inputs(self, uuids: Iterable[str], most: int) -> list[LateInput]:
        """The inputs of these instances that have live, newer data, the latest first. A compaction is no new data."""
        sql = f"""
            SELECT {_LATE.columns} FROM {PREFIX}instances i JOIN {PREFIX}refs b ON b.id = i.ref_id
            JOIN {PREFIX}instance_inputs x ON x.instance_id = i.id JOIN {PREFIX}instances u ON u.id = x.input_id
            JOIN {PREFIX}refs r ON r.id = u.ref_id JOIN {PREFIX}instances n ON n.id = r.canonical_id
            WHERE i.uuid IN (SELECT value FROM json_each(?)) AND n.id > u.id AND n.state = '{InstanceState.LIVE}'
              AND coalesce(n.same_as_id, n.id) <> coalesce(u.same_as_id, u.id)
            ORDER BY n.live_at DESC, r.ref, b.ref LIMIT ?"""
        return _LATE.rows(self._all(sql, Keys(uuids), most))
