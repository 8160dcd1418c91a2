"""The files that published tables list, for `gc`: snapshots are expired first, and files of the others stay (rule 10.10).

Only the store that publishes a table expires its snapshots. For a copy of the store and for any other, all of them stay.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from databuild_dagster.store.queries.queries import Queries
from databuild_dagster.store.store import Store
from databuild_dagster.tables.opening import open_table, place_of
from databuild_dagster.tables.port import OpenTable, Table


class PublishedFiles:
    """`data.cleaning.TableFiles` of the tables that datasets are published as. `warehouse` is the home's own."""

    def __init__(
        self,
        store: Store,
        warehouse: str,
        *,
        open_table: OpenTable = open_table,
        now: Callable[[], float] = time.time,
    ) -> None:
        self._store, self._warehouse, self._open, self._now = store, warehouse, open_table, now

    def kept(self, asset: str, older_than_seconds: float) -> set[str]:
        table = self._table(asset)
        if table is None:
            return set()
        return table.kept(self._now() - older_than_seconds if self._is_own(table) else 0.0)

    def expire(self, asset: str, older_than_seconds: float) -> int:
        table = self._table(asset)
        if table is None or not self._is_own(table):
            return 0
        return table.expire(self._now() - older_than_seconds)

    def _is_own(self, table: Table) -> bool:
        """Whether this store publishes the table. Raises the refusals of the mark."""
        mark, identity = table.mark(), self._store.identity()
        return mark is not None and identity.is_in_place and mark.store_id == identity.id

    def _table(self, asset: str) -> Table | None:
        dataset = Queries(self._store).dataset(asset)
        if dataset is None or not dataset.table:
            return None
        return self._open(place_of(dataset, self._warehouse))
