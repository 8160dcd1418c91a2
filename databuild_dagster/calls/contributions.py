"""Rows that features bring to answers of the core: checks of `log check --deep`, figures of metrics, parts of `status`."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from databuild_dagster.model.datasets import DatasetSpec
from databuild_dagster.store.invariants import Violation
from databuild_dagster.store.queries.queries import Queries
from databuild_dagster.store.store import Store

if TYPE_CHECKING:
    from dagster import DagsterInstance


@dataclass(frozen=True)
class Checked:
    """The state that checks look at. A check calls what it needs of it; Dagster is imported for `instance` alone."""

    store: Store
    #: The home's own warehouse.
    warehouse: Callable[[], str]
    instance: Callable[[], DagsterInstance]


class Repaired(NamedTuple):
    """The result of a repair."""

    #: Its field of the JSON answer.
    field: str
    shape: Mapping[str, object]
    sentence: str


@dataclass(frozen=True)
class Check:
    """A comparison of the log with files of a feature."""

    #: What is compared: "copies of lots".
    name: str
    #: A `DatabuildError` of the files is a violation, too.
    find: Callable[[Checked], Iterable[Violation]]
    #: Puts right what `find` finds, for `log check --repair-keys`. Raises what the warehouse raises.
    repair: Callable[[Checked], Repaired] | None = None


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


class Shown(NamedTuple):
    """A part as the answer has it."""

    #: For JSON.
    shape: object
    #: For people; none where all is well.
    sentences: list[str]


@dataclass(frozen=True)
class StatusPart:
    """What a feature says of all datasets."""

    #: Its field of the JSON answer.
    field: str
    #: Dagster is imported when the instance is called.
    show: Callable[[Collection[DatasetSpec], Callable[[], DagsterInstance]], Shown]
