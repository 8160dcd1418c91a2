"""Registered datasets and arcs, and how many of their refs are in which state."""

from __future__ import annotations

from typing import NamedTuple

from databuild_dagster.model.datasets import DatasetSpec, dataset_from
from databuild_dagster.model.errors import UnknownAsset
from databuild_dagster.store.format import PREFIX
from databuild_dagster.store.queries.asking import Asking
from databuild_dagster.store.selection import Selection


class ArcView(NamedTuple):
    """An arc in force, and the event up to which it has been followed."""

    asset: str
    seq: int
    #: The registration by which it is in force.
    since: int


_ARC = Selection(ArcView, "a")


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
