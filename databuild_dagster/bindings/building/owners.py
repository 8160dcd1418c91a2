"""Whose fault the failures of a step are: the partition's own, or that of its surroundings (rule 6.17)."""

import time
from collections.abc import Callable
from functools import partial
from threading import Lock
from typing import Any, Final, NamedTuple

from databuild_dagster.bindings.reading.probes import Ask, ask_spark, ask_warehouse, why_not
from databuild_dagster.bindings.reading.spark_resource import forget_session_of
from databuild_dagster.model.surroundings import Surrounding
from databuild_dagster.spark.errors import NoSession
from databuild_dagster.spark.failures import explain_failure, owner_of
from databuild_dagster.warehouse.layout import Warehouse

#: The answer of a probe counts for failures of so many seconds: many job runs fail at once.
KEPT_SECONDS: Final = 10.0


class Owned(NamedTuple):
    """What a failure is of, and why that is out of reach."""

    owner: Surrounding
    why: str


class Owners:
    """The owner of each failure of a step. Thread-safe."""

    def __init__(self, spark: Any, warehouse: Warehouse, clock: Callable[[], float] = time.monotonic) -> None:
        """`spark` is the resource with the session."""
        self._questions: dict[Surrounding, Ask] = {
            Surrounding.SPARK: lambda: ask_spark(
                lambda: spark.spark_session, partial(forget_session_of, spark), warehouse
            ),
            Surrounding.WAREHOUSE: lambda: ask_warehouse(warehouse),
        }
        self._clock = clock
        self._lock = Lock()
        #: When it was asked, and why it was out of reach; None if it was not.
        self._known: dict[Surrounding, tuple[float, str | None]] = {}

    def of(self, error: BaseException) -> Owned | None:
        """The owner of a failure; None for a failure of the partition itself, or if a probe of the owner succeeds.

        A session that was not opened counts as a failed probe.
        """
        owner = owner_of(error)
        if owner is None:
            return None
        if owner not in self._questions or isinstance(error, NoSession):
            return Owned(owner, explain_failure(error))
        why = self._why_not(owner)
        return None if why is None else Owned(owner, why)

    def _why_not(self, what: Surrounding) -> str | None:
        with self._lock:
            if what not in self._known or self._clock() - self._known[what][0] > KEPT_SECONDS:
                found = why_not(self._questions[what])
                self._known[what] = self._clock(), found
            return self._known[what][1]
