"""Figures of `ledger metrics --prometheus` that features bring; they are counted at each scrape."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from databuild_dagster.store.queries.queries import Queries

if TYPE_CHECKING:
    from dagster import DagsterInstance


class Gauge(NamedTuple):
    """A figure by labels, which may fall."""

    name: str
    help: str
    labels: tuple[str, ...] = ()


class Sample(NamedTuple):
    """The value of a gauge now."""

    gauge: str
    value: float
    #: The values of the gauge's labels.
    labels: tuple[str, ...] = ()


@dataclass(frozen=True)
class Measure:
    """Gauges that are counted together. A gauge without a sample is exported with its help alone."""

    gauges: tuple[Gauge, ...]
    #: Dagster is imported when the instance is called.
    samples: Callable[[Queries, Callable[[], DagsterInstance]], Iterable[Sample]]
