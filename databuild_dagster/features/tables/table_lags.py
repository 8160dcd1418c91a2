"""The lag of published tables, by the cursors of the ticks and the reasons that they have set aside: no catalog is asked."""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING, Final, NamedTuple

import msgspec
from dagster import DagsterInstance

from databuild_dagster.bindings.registry.instance import DagsterCursors, engine_for
from databuild_dagster.engine.follower import all_touched
from databuild_dagster.engine.set_aside import table_name
from databuild_dagster.features.tables.live_files import Touches
from databuild_dagster.features.tables.publisher import TableCursor, cursor_name
from databuild_dagster.model.datasets import DatasetSpec
from databuild_dagster.model.records import Time, time_of
from databuild_dagster.model.refs import asset_of
from databuild_dagster.model.touched import TOUCHING
from databuild_dagster.store.queries.queries import Queries

if TYPE_CHECKING:
    from dagster import DagsterInstance


#: Events that the search for the oldest event reads at once.
PAGE: Final = 200


class Lag(NamedTuple):
    """The distance of a table from the end of the log."""

    n_partitions: int
    #: The time of the oldest event that the table does not have, in seconds since 1970 UTC; None if it has all.
    since: float | None


def lag_of(queries: Queries, touches: Touches, asset: str, after_seq: int, head: int) -> Lag:
    """The lag of a table that holds up to `after_seq`."""
    n_partitions = len(touches.of(asset, after_seq, head))
    return Lag(n_partitions, _first_touch(queries, asset, after_seq, head) if n_partitions else None)


def _first_touch(queries: Queries, asset: str, after_seq: int, head: int) -> float | None:
    for start in range(after_seq, head, PAGE):
        for event in queries.events.named(TOUCHING, start, min(start + PAGE, head)):
            if any(asset_of(ref) == asset for ref in all_touched(queries, [event])):
                return event.at
    return None


class TableLag(msgspec.Struct, frozen=True):
    """How far the ticks have published a dataset."""

    asset: str
    #: The table's name; empty for a Delta table.
    table: str
    #: Published up to this event; None if no tick has published it.
    seq: int | None
    #: Why the last try failed; None if it did not.
    why: str | None
    #: Partitions that have changed since.
    partitions_behind: int | None
    #: Since the oldest change that is not in the table, or since the first failure of a table that no tick has published; 0
    #: if it has all.
    seconds_behind: float
    #: The time of that change.
    since: Time | None


def table_lags(instance: DagsterInstance, datasets: Collection[DatasetSpec]) -> list[TableLag]:
    """The lag of each published table."""
    published = [dataset for dataset in datasets if dataset.table]
    if not published:
        return []
    engine = engine_for(instance)
    queries, now = engine.queries, engine.clock()
    head, cursors, touches = queries.events.head().seq, DagsterCursors(instance), Touches(queries)
    recorded = queries.planning.asides_of([table_name(dataset.asset) for dataset in published])
    asides = {aside.name: aside for aside in recorded}
    found = []
    for dataset in published:
        assert dataset.table, "it is published"
        cursor = cursors.load(cursor_name(dataset.asset), TableCursor)
        aside = asides.get(table_name(dataset.asset))
        why = None if aside is None else aside.reason
        if cursor is None:
            n_behind, since = None, None if aside is None else float(aside.since)
        else:
            n_behind, since = lag_of(queries, touches, dataset.asset, cursor.seq, head)
        behind = 0.0 if since is None else round(max(now - since, 0.0), 3)
        seq = None if cursor is None else cursor.seq
        found.append(TableLag(dataset.asset, dataset.table.name, seq, why, n_behind, behind, time_of(since)))
    return found
