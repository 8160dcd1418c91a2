"""Checks of `log check --deep` that features bring: each compares the log with files, and may repair what it finds."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from databuild_dagster.store.invariants import Violation
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
