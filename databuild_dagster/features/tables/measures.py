"""The lag of published tables for Prometheus (rule 10.10)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from databuild_dagster.features.tables.status_parts import lags_of
from databuild_dagster.shapes.contributions import Gauge, Measure, Sample
from databuild_dagster.store.queries.queries import Queries

if TYPE_CHECKING:
    from dagster import DagsterInstance

_PARTITIONS = Gauge(
    "databuild_table_partitions_behind",
    "Partitions that have changed since the table's last publication; absent before the first.",
    ("dataset",),
)
_SECONDS = Gauge("databuild_table_seconds_behind", "Age of the oldest change that the table has not.", ("dataset",))


def _samples(queries: Queries, instance: Callable[[], DagsterInstance]) -> Iterator[Sample]:
    for lag in lags_of(queries.datasets().values(), instance):
        if lag.partitions_behind is not None:
            yield Sample(_PARTITIONS.name, lag.partitions_behind, (lag.asset,))
        yield Sample(_SECONDS.name, lag.seconds_behind, (lag.asset,))


MEASURES = (Measure((_PARTITIONS, _SECONDS), _samples),)
