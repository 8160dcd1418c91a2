"""The files that published tables list, for `gc`: snapshots are expired first, and files of the others stay (rule 10.10).

Only the store that publishes a table expires its snapshots. For a copy of the store and for any other, all of them stay.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

from databuild_dagster.features.tables.opening import open_table, place_of
from databuild_dagster.features.tables.port import OpenTable, Table
from databuild_dagster.features.tables.waiting import within
from databuild_dagster.store.queries.queries import Queries
from databuild_dagster.store.store import Store

T = TypeVar("T")


class PublishedFiles:
    """`data.listed_by_tables.TableFiles` of the tables that datasets are published as.

    `warehouse` is the home's own; `seconds` bound the wait for each answer.
    """

    def __init__(
        self,
        store: Store,
        warehouse: str,
        *,
        seconds: float | None = None,
        open_table: OpenTable = open_table,
        now: Callable[[], float] = time.time,
    ) -> None:
        self._store, self._warehouse, self._open, self._now = store, warehouse, open_table, now
        self._seconds = seconds

    def kept(self, asset: str, older_than_seconds: float) -> set[str]:
        since = self._now() - older_than_seconds
        return self._ask(asset, lambda table: table.kept(since if self._is_own(table) else 0.0)) or set()

    def expire(self, asset: str, older_than_seconds: float) -> int:
        since = self._now() - older_than_seconds
        return self._ask(asset, lambda table: table.expire(since) if self._is_own(table) else 0) or 0

    def published_to(self, asset: str) -> int | None:
        return self._ask(asset, self._published_to)

    def _published_to(self, table: Table) -> int | None:
        mark, identity = table.mark(), self._store.identity()
        if not identity.is_in_place:
            return None
        if mark is None:
            # The first publication may be on its way.
            return 0
        return mark.seq if mark.store_id == identity.id else None

    def _is_own(self, table: Table) -> bool:
        """Whether this store publishes the table. Raises the refusals of the mark."""
        mark, identity = table.mark(), self._store.identity()
        return mark is not None and identity.is_in_place and mark.store_id == identity.id

    def _ask(self, asset: str, question: Callable[[Table], T]) -> T | None:
        """The answer of a dataset's table; None for a dataset without one. Raises `TableSilent`, and what the table raises."""
        dataset = Queries(self._store).dataset(asset)
        if dataset is None or not dataset.table:
            return None
        place = place_of(dataset, self._warehouse)
        return within(self._seconds, place, lambda: question(self._open(place)))
