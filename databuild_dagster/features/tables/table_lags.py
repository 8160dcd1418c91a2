"""The lag of published tables, by the cursors of the ticks and the reasons that they have set aside: no catalog is asked."""

from collections.abc import Collection
from typing import NamedTuple

from dagster import DagsterInstance

from databuild_dagster.bindings.registry.instance import DagsterCursors, engine_for
from databuild_dagster.engine.set_aside import table_name
from databuild_dagster.features.tables.lag import lag_of
from databuild_dagster.features.tables.live_files import Touches
from databuild_dagster.features.tables.publisher import TableCursor, cursor_name
from databuild_dagster.model.datasets import DatasetSpec


class TableLag(NamedTuple):
    """How far the ticks have published a dataset."""

    asset: str
    #: The table's name; empty for a Delta table.
    table: str
    #: Published up to this event; None if no tick has published it.
    seq: int | None
    #: Partitions that have changed since.
    n_behind: int | None
    #: Seconds since the oldest change that is not in the table, or since the first failure of a table that no tick has
    #: published; 0 if it has all.
    behind_seconds: float = 0.0
    #: The time of that change, in seconds since 1970 UTC.
    since: float | None = None
    #: Why the last try failed; None if it did not.
    why: str | None = None


def table_lags(instance: DagsterInstance, datasets: Collection[DatasetSpec]) -> list[TableLag]:
    """The lag of each published table."""
    published = [dataset for dataset in datasets if dataset.table]
    if not published:
        return []
    engine = engine_for(instance)
    queries, now = engine.queries, engine.clock()
    head, cursors, touches = queries.head().seq, DagsterCursors(instance), Touches(queries)
    asides = {aside.name: aside for aside in queries.asides_of([table_name(dataset.asset) for dataset in published])}
    found = []
    for dataset in published:
        assert dataset.table, "it is published"
        cursor = cursors.load(cursor_name(dataset.asset), TableCursor)
        aside = asides.get(table_name(dataset.asset))
        why = None if aside is None else aside.reason
        if cursor is None:
            n_behind, since = None, None if aside is None else aside.since
        else:
            n_behind, since = lag_of(queries, touches, dataset.asset, cursor.seq, head)
        behind_seconds = 0.0 if since is None else max(now - since, 0.0)
        seq = None if cursor is None else cursor.seq
        found.append(TableLag(dataset.asset, dataset.table.name, seq, n_behind, behind_seconds, since, why))
    return found
