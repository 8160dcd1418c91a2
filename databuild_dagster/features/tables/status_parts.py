"""The lag of published tables in `databuild status`. Dagster has the cursors of the ticks, and is imported only where a dataset is
published."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import TYPE_CHECKING

from databuild_dagster.model.datasets import DatasetSpec
from databuild_dagster.shapes.contributions import Shown, StatusPart
from databuild_dagster.shapes.fields import when

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
