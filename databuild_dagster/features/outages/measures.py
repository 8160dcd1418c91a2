"""The outages for Prometheus."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from databuild_dagster.calls.contributions import Gauge, Measure, Sample
from databuild_dagster.model.set_aside import Subject
from databuild_dagster.store.queries.queries import Queries

if TYPE_CHECKING:
    from dagster import DagsterInstance

_OUT_OF_REACH = Gauge(
    "databuild_out_of_reach", "1 while launches are held back by an outage or by a person.", ("location", "subject")
)


def _samples(queries: Queries, instance: Callable[[], DagsterInstance]) -> Iterator[Sample]:
    for aside in queries.planning.set_aside():
        if aside.kind in (Subject.OUTAGE, Subject.HOLD):
            yield Sample(_OUT_OF_REACH.name, 1, (aside.location, aside.name))


MEASURES = (Measure((_OUT_OF_REACH,), _samples),)
