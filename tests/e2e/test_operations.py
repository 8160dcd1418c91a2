"""An operation over the partitions of a dataset, run by Dagster's daemon: workers are killed, and it ends all the same, once;
canceled, it stops, Spark included (SPEC 9.4-9.7).

What happens when follows from what lies on the disk: a job leaves a file with its process's id, and waits for another one.
"""

import os
import signal
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from databuild_dagster.engine import Engine
from databuild_dagster.engine.operations import DistributedOperationManager, OperationView
from databuild_dagster.model.operations import OperationId, OperationState
from tests.support.catalog import SmallCatalog

from .conftest import Dagster

pytestmark = [pytest.mark.long, pytest.mark.timeout(900)]

DEFINITIONS = """
import os
import threading
from pathlib import Path

import dagster as dg
import pandas as pd

from databuild_dagster import BuildContext, DistributedOperation, build_definitions, databuild_asset

HERE = Path(__file__).parent
KEYS = [str(n) for n in range(8)]


@databuild_asset(partitions_def=dg.StaticPartitionsDefinition(KEYS))
def numbers(context: BuildContext) -> pd.DataFrame:
    return pd.DataFrame({"n": [int(context.partition_key)]})


class Count(DistributedOperation):
    '''Writes a file for each partition; the first process that comes to the middle is stuck there.'''

    type_name = "count"

    def start_or_resume_job(self, arg, partition, context):
        (HERE / "calls" / f"{context.partition}#{os.getpid()}").touch()
        if context.partition == "3" and not context.is_resumed:
            (HERE / "stuck").write_text(str(os.getpid()))
            threading.Event().wait(600)
        rows = context.manifest.rows
        (HERE / "written" / f"{context.partition}#{context.token}").touch()
        context.mark_job_complete(True, {"rows": rows})

    def cancel_job_and_cleanup(self, arg, partition, context):
        (HERE / "written" / f"{context.partition}#{context.token}").unlink(missing_ok=True)

    def complete_operation(self, arg, dataset, completion):
        (HERE / "completed" / str(sum(mark.detail["rows"] for mark in completion.marks.values()))).touch()
        return {"rows": sum(mark.detail["rows"] for mark in completion.marks.values())}


class Endless(DistributedOperation):
    '''Each job counts in Spark for ever.'''

    type_name = "endless"

    def start_or_resume_job(self, arg, partition, context):
        context.spark.range(10).count()
        (HERE / "counting").touch()
        context.spark.range(600_000_000_000).selectExpr("sum(id * rand())").collect()

    def cancel_job_and_cleanup(self, arg, partition, context):
        (HERE / "stopped").touch()


defs = build_definitions([numbers], operations=[Count(), Endless()], location="operated")
"""

RUNS = '{ runsOrError(filter: {pipelineName: "databuild_operation"}) { ... on Runs { results { status } } } }'


@pytest.fixture(scope="module")
def dagster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Dagster]:
    running = Dagster(tmp_path_factory.mktemp("operations"), DEFINITIONS)
    for name in ("calls", "written", "completed"):
        (running.folder / name).mkdir()
    running.databuild("build", *(f"numbers@{n}" for n in range(8)))
    running.start()
    yield running
    running.stop()
    running.databuild("spark", "stop")


def manager(dagster: Dagster) -> DistributedOperationManager:
    return DistributedOperationManager(Engine(dagster.store, SmallCatalog([])))


def view(dagster: Dagster, id: str) -> OperationView:
    return manager(dagster).operation(OperationId.parse(id))


def keys(dagster: Dagster) -> list[str]:
    stays = ("nextInstanceId", "distOpHistory")
    entries = manager(dagster).meta.prefix("distOp").entries
    return [entry.key for entry in entries if not any(each in entry.key for each in stays)]


def statuses(dagster: Dagster) -> list[str]:
    return [run["status"] for run in dagster.graphql(RUNS)["runsOrError"]["results"]]


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def start(dagster: Dagster, type_name: str) -> str:
    answer: dict[str, Any] = dagster.databuild("operate", type_name, "numbers", "--no-wait")
    return str(answer["operation"])


def test_a_worker_is_killed_and_the_operation_ends_the_same_and_once(dagster: Dagster) -> None:
    """SPEC 9.5, 9.6"""
    id = start(dagster, "count")
    stuck = dagster.folder / "stuck"
    dagster.wait_until(lambda: stuck.exists() and stuck.read_text() != "", "a job is stuck")

    with suppress(ProcessLookupError):
        os.kill(int(stuck.read_text()), signal.SIGKILL)
    dagster.wait_until(lambda: view(dagster, id).state is not OperationState.RUNNING, "it has ended")

    ended = view(dagster, id)
    assert (ended.state, ended.done, ended.total, ended.report) == (OperationState.SUCCESS, 8, 8, {"rows": 8})
    assert names(dagster.folder / "completed") == ["8"]
    assert [name.partition("#")[0] for name in names(dagster.folder / "written")] == [str(n) for n in range(8)]
    of_the_stuck = [name for name in names(dagster.folder / "calls") if name.startswith("3#")]
    assert len(of_the_stuck) == 2, "by who was killed, and by who went on"
    assert keys(dagster) == []
    dagster.wait_until(
        lambda: set(statuses(dagster)) == {"SUCCESS", "FAILURE"}, "Dagster shows which of its runs were lost"
    )
    assert dagster.violations() == []


def test_a_canceled_one_is_interrupted_in_spark_and_leaves_no_key(dagster: Dagster) -> None:
    """SPEC 9.7"""
    id = start(dagster, "endless")
    dagster.wait_until((dagster.folder / "counting").exists, "a job counts in Spark")

    dagster.databuild("operations", "cancel", id, "--reason", "enough")

    dagster.wait_until((dagster.folder / "stopped").exists, "its job is interrupted and cleaned up")
    dagster.wait_until(lambda: not set(statuses(dagster)) - {"SUCCESS", "FAILURE"}, "its executors have ended")
    assert view(dagster, id).state is OperationState.CANCELED
    dagster.wait_until(lambda: keys(dagster) == [], "no key is left")
    assert dagster.violations() == []
