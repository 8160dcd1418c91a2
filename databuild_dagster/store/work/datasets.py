"""Datasets and arcs of a unit of work."""

from __future__ import annotations

from collections.abc import Iterable

from databuild_dagster.model.rows import ArcRow, DatasetRow
from databuild_dagster.store.backends.base import Connection
from databuild_dagster.store.schema import PREFIX
from databuild_dagster.store.work.row_sets import Shape
from databuild_dagster.store.work.tables import Tables

DATASETS = Shape(DatasetRow, "asset")
ARCS = Shape(ArcRow, "asset")
_ADD_FIRING = f"INSERT INTO {PREFIX}arc_firings (arc_id, instance_id, seq) VALUES (?, ?, ?)"

LINKS = (_ADD_FIRING,)


class DatasetWork(Tables):
    """`model.view.Registered`."""

    def __init__(self, connection: Connection) -> None:
        super().__init__(connection)
        self._datasets = self._set_of(DATASETS)
        self._arcs = self._set_of(ARCS)

    def datasets(self, assets: Iterable[str]) -> dict[str, DatasetRow]:
        return self._datasets.keys(assets)

    def datasets_of_location(self, location: str) -> list[DatasetRow]:
        self._datasets.flush()
        return self._datasets.fetch("location = ? ORDER BY id", location)

    def asset_names(self) -> list[str]:
        return [name for (name,) in self.connection.execute(f"SELECT asset FROM {PREFIX}datasets WHERE removed = 0")]

    def arcs(self, assets: Iterable[str]) -> dict[str, ArcRow]:
        return self._arcs.keys(assets)

    def arcs_in_force(self) -> list[ArcRow]:
        self._arcs.flush()
        return self._arcs.fetch("removed = 0 ORDER BY id")

    def add_firings(self, firings: Iterable[tuple[int, int, int]]) -> None:
        self._link(_ADD_FIRING, firings)
