"""The files that published tables list, for `gc`: snapshots are expired first, and files of kept snapshots stay (rule 10.10).

Only the store that publishes a table expires its snapshots. For a copy of the store and for any other store, all snapshots stay.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from itertools import groupby
from typing import TYPE_CHECKING, Final, TypeVar

from databuild_dagster.data.keepers import Keeper
from databuild_dagster.features.tables.opening import open_table, place_of
from databuild_dagster.features.tables.port import OpenTable, Table, within
from databuild_dagster.model.errors import DatabuildError
from databuild_dagster.model.refs import asset_of
from databuild_dagster.model.wording import filled
from databuild_dagster.store.queries.queries import Queries
from databuild_dagster.store.removals import Removable
from databuild_dagster.store.store import Store

if TYPE_CHECKING:
    from dagster import DagsterInstance

    from databuild_dagster.engine.engine import Engine

T = TypeVar("T")

#: Why data stays that left after the table's newest snapshot.
AWAITED: Final = "its table is behind the log, so a publication that runs now may list its files"
#: Why it stays where no snapshot says how far a first publication is.
NEVER_PUBLISHED: Final = (
    "its table was never published, so a first publication may list its files; `databuild gc` may remove it after `databuild admin "
    "publish {asset}`, or after the next tick"
)


class PublishedFiles(Keeper):
    """The files of the tables that datasets are published as. The methods raise a `DatabuildError` for a table that cannot be read.

    `warehouse` is the home's own; `seconds` bound the wait for each answer.
    """

    name = "its table"
    listed = "a snapshot of its table lists its files"

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

    def files(self, asset: str, older_than_seconds: float) -> set[str]:
        """The files of the snapshots that `expire` leaves; empty for a dataset without a table."""
        since = self._now() - older_than_seconds
        return self._ask(asset, lambda table: table.kept(since if self._is_own(table) else 0.0)) or set()

    def expire(self, asset: str, older_than_seconds: float) -> int:
        """Forget the snapshots that were replaced so long ago; returns their number."""
        since = self._now() - older_than_seconds
        return self._ask(asset, lambda table: table.expire(since) if self._is_own(table) else 0) or 0

    def why_kept(self, found: Iterable[Removable]) -> dict[str, str]:
        """Instances that the next snapshot of their table may list; all instances of a table that cannot be read.

        A publisher reads the log, and commits its snapshot seconds later. So the data of an instance that left after the table's
        newest snapshot may be in the next snapshot, although readers of the dataset do not see it any longer.
        """
        once_live = sorted((one for one in found if one.held.was_live), key=lambda one: asset_of(one.ref))
        why: dict[str, str] = {}
        for asset, of_asset in groupby(once_live, key=lambda one: asset_of(one.ref)):
            instances = list(of_asset)
            try:
                published_to = self.published_to(asset)
            except DatabuildError:
                why |= {one.uuid: AWAITED for one in instances}
                continue
            if published_to is not None:
                left = [one.uuid for one in instances if one.held.left_seq > published_to]
                why |= dict.fromkeys(left, AWAITED if published_to else filled(NEVER_PUBLISHED, {"asset": asset}))
        return why

    def published_to(self, asset: str) -> int | None:
        """The event up to which the table is published, 0 before its first snapshot; None for a foreign store's table or no table."""
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
        """The answer of a dataset's table; None for a dataset without a table. Raises `TableSilent`, and what the table raises."""
        dataset = Queries(self._store).datasets.get(asset)
        if dataset is None or not dataset.table:
            return None
        place = place_of(dataset, self._warehouse)
        return within(self._seconds, place, lambda: question(self._open(place)))


def open_published_files(
    engine: Engine, warehouse: str, *, seconds: float | None, instance: Callable[[], DagsterInstance]
) -> PublishedFiles:
    """The keeper for `gc`."""
    return PublishedFiles(engine.store, warehouse, seconds=seconds)


KEEPS: Final = (open_published_files,)
