"""Whether Spark and the warehouse of a code location answer, each by a small question with a bound (rule 6.17)."""

import re
import secrets
from collections.abc import Callable
from concurrent.futures import wait
from contextlib import suppress
from typing import Any, Final

from databuild_dagster.model.errors import DatabuildError
from databuild_dagster.spark.errors import SparkRunsNoJob, WarehouseOutOfReach
from databuild_dagster.spark.failures import explain_failure
from databuild_dagster.spark.reach import PROBE, check_answers, check_reach
from databuild_dagster.warehouse.errors import DiskTrouble, StorageTrouble
from databuild_dagster.warehouse.layout import Warehouse
from databuild_dagster.warehouse.threads import in_own_thread

#: How long a job run that failed waits for the answer. A Spark that answers later is not out of reach for long.
PROBE_SECONDS: Final = 30.0

Ask = Callable[[], object]

#: Errors of a probe after which other calls in the same session may go on.
_OF_A_SESSION_THAT_WORKS: Final = (SparkRunsNoJob, WarehouseOutOfReach, DiskTrouble, StorageTrouble)

#: The files of a probe, whose names say nothing to a reader of the sentence.
_OF_A_PROBE: Final = re.compile(rf"/{re.escape(PROBE)}-[0-9a-f]+(/probe)?")


def ask_warehouse(warehouse: Warehouse) -> None:
    """Write a file, read it and remove it. Raises `DiskTrouble`, `StorageTrouble`."""
    warehouse.check_usable()
    folder = f"{warehouse.root}/{PROBE}-{secrets.token_hex(4)}"
    try:
        warehouse.storage.replace(f"{folder}/probe", b"probe")
        warehouse.storage.read_bytes(f"{folder}/probe")
    finally:
        # As in the probe of Spark: a store that does not allow it is no reason to wait for ever.
        with suppress(DatabuildError, OSError):
            warehouse.storage.remove_tree(folder)


def ask_spark(session: Callable[[], Any], forget: Callable[[Any], object], warehouse: Warehouse) -> None:
    """Open a session unless one is open, run a job in it, and see that it meets this process in the warehouse.

    Raises errors of opening, of `check_answers` and of `check_reach`. `forget` stops a session that is lost
    or broken, and no session that is slow or does not reach the warehouse: calls of this process may run in it.
    """
    opened = session()
    try:
        check_answers(opened, PROBE_SECONDS)
        check_reach(opened, warehouse, start_seconds=PROBE_SECONDS)
    except _OF_A_SESSION_THAT_WORKS:
        raise
    except Exception:
        forget(opened)
        raise


def why_not(ask: Ask, seconds: float = PROBE_SECONDS) -> str | None:
    """Why a question has no answer, as a sentence; None if it has an answer. Waits at most `seconds`."""
    future = in_own_thread(ask, "databuild probe")
    if not wait([future], seconds).done:
        return f"it has not answered for {seconds:.0f} s"
    error = future.exception()
    return None if error is None else _OF_A_PROBE.sub("", explain_failure(error))
