"""`validate` over the days of the example, whose run workers are killed one after another: the report is that of a run
that was not disturbed (rules 9.5, 9.6, 9.8).

The n-th worker lives for n seconds once it has jobs, so that they die at different places, and the last one comes to the end.
"""

import os
import shutil
import signal
import threading
from collections.abc import Iterator
from contextlib import suppress
from datetime import date, timedelta
from pathlib import Path
from typing import Any

import pytest

from databuild_dagster.model.operations.states import OperationState

from .conftest import Dagster
from .test_kills import keys, view

LONG = bool(os.environ.get("DATABUILD_LONG"))
pytestmark = [pytest.mark.long, pytest.mark.timeout(3600 if LONG else 900), pytest.mark.extended]

ROOT = Path(__file__).parents[2]
DAYS = [str(date(2013, 1, 1) + timedelta(day)) for day in range(365 if LONG else 31)]
#: Workers that are killed, unless the operation ends before.
MAX_KILLED = 20 if LONG else 3

DEFINITIONS = """
import dagster as dg
from pyspark.sql import DataFrame, SparkSession

import nycflights
from databuild_dagster import BuildContext, build_definitions, databuild_asset

daily = dg.DailyPartitionsDefinition(start_date="2013-01-01", end_date="2014-01-01")


@databuild_asset(partitions_def=daily, batched=True)
def flights(context: BuildContext, spark: SparkSession) -> DataFrame:
    return spark.createDataFrame(nycflights.flights_of(context.partition_keys))


defs = build_definitions([flights], location="validated")
"""

RULES = (
    "--not-null=tailnum",
    "--range=dep_delay=-120:600",
    "--unique=year,month,day,flight,carrier",
    "--expression=arr_delay is null or air_time > 0",
    "--narrow-type=flight=smallint",
)


@pytest.fixture
def dagster(tmp_path: Path) -> Iterator[Dagster]:
    shutil.copy(ROOT / "nycflights.py", tmp_path)
    running = Dagster(tmp_path, DEFINITIONS)
    running.finish(running.start_databuild("build", *(f"flights@{day}" for day in DAYS)))
    with running.running():
        yield running


def start(dagster: Dagster) -> str:
    return str(dagster.databuild("operation", "run", "validate", "flights", *RULES, "--no-wait")["operation"])


def has_ended(dagster: Dagster, id: str) -> bool:
    return view(dagster, id).state is not OperationState.RUNNING


def workers(dagster: Dagster, id: str) -> set[int]:
    """The processes that have jobs, as their leases name them: host/boot/namespace/pid/start."""
    leases = view(dagster, id).executors.values()
    return {int(lease.holder.split("/")[3]) for lease in leases if not lease.released}


def report_of(dagster: Dagster, id: str) -> Any:
    ended = view(dagster, id)
    assert (ended.state, ended.done, ended.total) == (OperationState.SUCCESS, len(DAYS), len(DAYS))
    return ended.report


def kill_workers(dagster: Dagster, id: str) -> set[int]:
    """Until the operation has ended, or so many are dead; which they were."""
    killed: set[int] = set()
    while len(killed) < MAX_KILLED:
        dagster.wait_until(lambda: has_ended(dagster, id) or bool(workers(dagster, id) - killed), "a worker has jobs")
        threading.Event().wait(len(killed))
        if has_ended(dagster, id):
            break
        for pid in workers(dagster, id) - killed:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
            killed.add(pid)
    return killed


def test_with_workers_killed_the_report_is_that_of_an_undisturbed_run(dagster: Dagster) -> None:
    undisturbed = start(dagster)
    dagster.wait_until(lambda: has_ended(dagster, undisturbed), "the undisturbed one has ended")
    disturbed = start(dagster)

    killed = kill_workers(dagster, disturbed)
    dagster.wait_until(lambda: has_ended(dagster, disturbed), "the disturbed one has ended")

    assert killed, "no process was killed"
    found = report_of(dagster, disturbed)
    assert found == report_of(dagster, undisturbed)
    assert (found["ok"], found["partitions"]) == (False, len(DAYS)), "there are flights without a plane's number"
    assert keys(dagster) == []
    assert dagster.violations() == []
