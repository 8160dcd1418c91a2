"""The files that published tables list, for `gc`: snapshots are expired first, and files of the others stay (rule 10.10)."""

from __future__ import annotations

import time
from collections.abc import Callable

from databuild_dagster.store.queries.queries import Queries
from databuild_dagster.tables.opening import open_table, place_of
from databuild_dagster.tables.port import OpenTable, Table


class PublishedFiles:
    """`data.cleaning.TableFiles` of the tables that datasets are published as. `warehouse` is the home's own."""

    def __init__(
        self,
        queries: Queries,
        warehouse: str,
        *,
        open_table: OpenTable = open_table,
        now: Callable[[], float] = time.time,
    ) -> None:
        self._queries, self._warehouse, self._open, self._now = queries, warehouse, open_table, now

    def kept(self, asset: str, older_than_seconds: float) -> set[str]:
        table = self._table(asset)
        return set() if table is None else table.kept(self._now() - older_than_seconds)

    def expire(self, asset: str, older_than_seconds: float) -> int:
        table = self._table(asset)
        return 0 if table is None else table.expire(self._now() - older_than_seconds)

    def _table(self, asset: str) -> Table | None:
        dataset = self._queries.dataset(asset)
        if dataset is None or not dataset.table:
            return None
        return self._open(place_of(dataset, self._warehouse))
