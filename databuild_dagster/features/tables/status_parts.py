"""The lag of published tables in `databuild status` and for Prometheus (rule 10.10).

Dagster has the cursors of the ticks, and is imported only where a dataset is published."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from typing import TYPE_CHECKING

from databuild_dagster.calls.contributions import Gauge, Measure, Sample, Shown, StatusPart
from databuild_dagster.engine.wording import when
from databuild_dagster.model.datasets import DatasetSpec
from databuild_dagster.store.queries.queries import Queries

if TYPE_CHECKING:
    from dagster import DagsterInstance

    from databuild_dagster.features.tables.table_lags import TableLag


def lags_of(datasets: Collection[DatasetSpec], instance: Callable[[], DagsterInstance]) -> list[TableLag]:
    """The lag of each published table."""
    if not any(spec.table for spec in datasets):
        return []
    from databuild_dagster.features.tables.table_lags import table_lags

    return table_lags(instance(), datasets)


def _tables(datasets: Collection[DatasetSpec], instance: Callable[[], DagsterInstance]) -> Shown:
    lags = lags_of(datasets, instance)
    return Shown(lags, list(filter(None, map(_lag_sentence, lags))))


def _lag_sentence(lag: TableLag) -> str | None:
    """None for a table that is up to date."""
    why = "" if lag.why is None else f": {lag.why}"
    since = "" if lag.since is None else f", since {when(lag.since)}"
    if lag.seq is None:
        return f"The table of {lag.asset} is not published yet{since}{why}{'' if why else '.'}"
    if not lag.partitions_behind:
        return None
    partitions = f"{lag.partitions_behind} partition{'' if lag.partitions_behind == 1 else 's'}"
    return f"The table of {lag.asset} is {partitions} behind, at seq {lag.seq}{since}{why}{'' if why else '.'}"


STATUS_PARTS = (StatusPart("tables", _tables),)


_PARTITIONS = Gauge(
    "databuild_table_partitions_behind",
    "Partitions that have changed since the table's last publication; absent before the first.",
    ("dataset",),
)
_SECONDS = Gauge("databuild_table_seconds_behind", "Age of the oldest change that the table has not.", ("dataset",))


def _samples(queries: Queries, instance: Callable[[], DagsterInstance]) -> Iterator[Sample]:
    for lag in lags_of(queries.datasets.all().values(), instance):
        if lag.partitions_behind is not None:
            yield Sample(_PARTITIONS.name, lag.partitions_behind, (lag.asset,))
        yield Sample(_SECONDS.name, lag.seconds_behind, (lag.asset,))


MEASURES = (Measure((_PARTITIONS, _SECONDS), _samples),)
