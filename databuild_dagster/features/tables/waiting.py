"""A bound on a call to a table: the libraries of catalogs may wait for an answer without one."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import wait
from typing import TypeVar

from databuild_dagster.features.tables.errors import TableSilent
from databuild_dagster.features.tables.port import Place
from databuild_dagster.warehouse.threads import in_own_thread

T = TypeVar("T")

#: The seconds that a receipt waits for one table, which is only a part of its answer.
RECEIPT_SECONDS = 30.0


def within(seconds: float | None, place: Place, call: Callable[[], T]) -> T:
    """The result of a call that asks the table of a place; None waits without a bound.

    Raises `TableSilent`, and what the call raises. A call that is late continues in its thread, and ends with the process.
    """
    if seconds is None:
        return call()
    late = in_own_thread(call, f"databuild table of {place.asset}")
    if not wait([late], seconds).done:
        raise TableSilent(asset=place.asset, table=place.shown, seconds=seconds)
    return late.result()
