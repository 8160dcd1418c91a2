"""What the package is for, once each, in one deployment that runs as people run it (`databuild dev`).

`make test` runs this file beside the rules: daemon, sensor, web server, code server and commands are processes, and the log
is on SQLite. A last test builds on PostgreSQL. January on Spark is in test_example.py. Other accidents, doors and modes
are in the other files of this folder.
"""

from __future__ import annotations

import json
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pandas as pd
import pytest

from databuild_dagster.engine.engine import Engine
from databuild_dagster.features.operations.manager import DistributedOperationManager
from databuild_dagster.features.operations.seen import OperationView
from databuild_dagster.model.operations.keys import OperationId
from databuild_dagster.model.operations.states import OperationState
from databuild_dagster.model.states import InstanceState, JobRunState
from tests.support import command
from tests.support.catalog import SmallCatalog
from tests.support.postgres import postgres_server
from tests.support.processes import kill

from .conftest import DEFINITIONS as SHOP
from .conftest import SETTINGS, Dagster, on_postgres

pytestmark = [
    pytest.mark.long("daemon, sensor, web server and commands are processes"),
    pytest.mark.mission,
    pytest.mark.timeout(600),
]

DEFINITIONS = """
import os
import threading
from pathlib import Path

import dagster as dg
import pandas as pd

from databuild_dagster import (
    BuildContext, DepMiss, DistributedOperation, build_definitions, databuild_asset, databuild_boundary
)

HERE = Path(__file__).parent
daily = dg.DailyPartitionsDefinition("2024-01-01", end_date="2024-01-04")


def wait_for(name):
    for _ in range(6000):
        if (HERE / name).exists():
            return
        threading.Event().wait(0.05)
    raise TimeoutError(f"no test has created {name}")


@databuild_asset(partitions_def=daily)
def prices(context: BuildContext) -> pd.DataFrame:
    return pd.DataFrame({"price": [float(os.environ.get("PRICE", "2"))]})


@databuild_asset(partitions_def=daily)
def takings(context: BuildContext) -> pd.DataFrame:
    '''The function learns at run time that it needs prices: Dagster knows no edge.'''
    needed = f"prices@{context.partition_key}"
    if not (HERE / "priced").exists():
        (HERE / "priced").touch()
        raise DepMiss(needed)
    return pd.DataFrame({"takings": [3.0]})


@databuild_asset(partitions_def=daily)
def total(prices: pd.DataFrame) -> pd.DataFrame:
    return prices.rename(columns={"price": "total"})


@databuild_asset(partitions_def=daily)
def slow(context: BuildContext) -> pd.DataFrame:
    (HERE / f"caller-{os.getpid()}").touch()
    wait_for("go")
    return pd.DataFrame({"n": [1]})


class Shop(dg.Config):
    name: str


@databuild_asset(partitions_def=daily)
def unconfigured(context: BuildContext, config: Shop, prices: pd.DataFrame) -> pd.DataFrame:
    '''Dagster makes no run of it: its name has no value.'''
    return prices


tills = databuild_boundary(
    "tills",
    partitions_def=daily,
    files=f"{HERE}/landing/tills_{{time:%Y%m%d}}*.parquet",
    settle_seconds=0,
    interval_seconds=5,
)


@databuild_asset(partitions_def=daily, subscribe="tills", follow_late=True)
def sales(tills: pd.DataFrame) -> pd.DataFrame:
    return pd.DataFrame({"sold": [int(tills["sold"].sum())]})


class Count(DistributedOperation):
    '''Adds up rows; the first process that comes to the second day is stuck there.'''

    type_name = "count"

    def start_or_resume_job(self, arg, partition, context):
        if context.partition == "2024-01-02" and not context.is_resumed:
            # Of one write, so that the test never reads half of it.
            (HERE / "getting-stuck").write_text(str(os.getpid()))
            (HERE / "getting-stuck").rename(HERE / "stuck")
            threading.Event().wait(600)
        context.mark_job_complete(True, {"rows": context.manifest.rows})

    def cancel_job_and_cleanup(self, arg, partition, context):
        pass

    def complete_operation(self, arg, dataset, completion):
        (HERE / f"completed-{os.getpid()}").touch()
        return {"rows": sum(mark.detail["rows"] for mark in completion.marks.values())}


defs = dg.Definitions.merge(
    build_definitions([prices, takings, total, slow, unconfigured, tills, sales], operations=[Count()]),
    # A process for each step besides that of each run would double the time of the tests.
    dg.Definitions(executor=dg.in_process_executor),
)
"""

DAYS = ("2024-01-01", "2024-01-02", "2024-01-03")


@pytest.fixture(scope="module")
def dagster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Dagster]:
    deployment = Dagster(tmp_path_factory.mktemp("mission"), DEFINITIONS)
    (deployment.folder / "landing").mkdir()
    with deployment.running():
        yield deployment
        assert deployment.databuild("log", "check", "--deep") == {"ok": True, "violations": []}
    deployment.store.close()


def test_the_sensor_of_a_daemon_builds_what_is_wanted_with_its_inputs(dagster: Dagster) -> None:
    dagster.databuild("want", "create", "total@2024-01-01")

    dagster.wait_until_live("total@2024-01-01")

    assert dagster.databuild("read", "total@2024-01-01") == [{"total": 2.0}]
    assert dagster.state("prices@2024-01-01") is InstanceState.LIVE


def test_what_dagster_refuses_fails_alone_beside_what_the_daemon_builds(dagster: Dagster) -> None:
    """Rule 6.8"""
    dagster.databuild("want", "create", "unconfigured@2024-01-03", "total@2024-01-03")

    dagster.wait_until_live("total@2024-01-03")
    dagster.wait_until(lambda: dagster.state("unconfigured@2024-01-03") is InstanceState.FAILED, "it has failed")

    (cause,) = dagster.databuild("explain", "unconfigured@2024-01-03")["causes"]
    assert "Dagster starts no run of unconfigured: a launch has no run configuration" in cause["why"]


def test_a_job_that_misses_an_input_is_retried_when_the_input_is_live(dagster: Dagster) -> None:
    dagster.databuild("want", "create", "takings@2024-01-02")

    dagster.wait_until_live("takings@2024-01-02")

    runs = [run.state for run in dagster.queries.job_runs.newest() if "takings@2024-01-02" in run.refs]
    assert sorted(runs) == sorted([JobRunState.DEP_MISSED, JobRunState.SUCCEEDED])
    assert dagster.state("prices@2024-01-02") is InstanceState.LIVE


def test_a_taint_of_an_input_heals_what_was_made_of_it(dagster: Dagster) -> None:
    dagster.databuild("build", "total@2024-01-03")
    wrong = {
        ref: dagster.databuild("show", ref)["canonical"]["uuid"] for ref in ("prices@2024-01-03", "total@2024-01-03")
    }
    dagster.databuild("want", "create", "total@2024-01-03")

    dagster.databuild("taint", "prices@2024-01-03", "--reason", "a wrong price", "--downstream")
    dagster.wait_until(lambda: dagster.are_live(*wrong), "both are live again")

    healed = {ref: dagster.databuild("show", ref)["canonical"] for ref in wrong}
    assert {ref: instance["uuid"] for ref, instance in healed.items()}.items().isdisjoint(wrong.items())
    assert healed["total@2024-01-03"]["inputs"] == [healed["prices@2024-01-03"]["uuid"]]


def test_a_ref_that_two_processes_ask_for_at_once_is_built_once(dagster: Dagster) -> None:
    ref = "slow@2024-01-01"
    folder = dagster.folder

    processes = [dagster.start_databuild("build", ref) for _ in range(2)]
    dagster.wait_until(lambda: len(dagster.queries.wants.of_ref(ref)) == 2, "both processes want the ref")
    dagster.wait_until(lambda: bool([*folder.glob("caller-*")]), "the ref is being built")
    (folder / "go").touch()
    for process in processes:
        dagster.finish(process)

    assert len([*folder.glob("caller-*")]) == 1
    assert len(dagster.databuild("history", ref)) == 1


def test_rows_of_a_late_file_reach_the_asset_that_follows(dagster: Dagster) -> None:
    landing = dagster.folder / "landing"
    pd.DataFrame({"sold": [5]}).to_parquet(landing / "tills_20240101.parquet")
    dagster.wait_until_live("sales@2024-01-01")
    assert dagster.databuild("read", "sales@2024-01-01") == [{"sold": 5}]

    pd.DataFrame({"sold": [2]}).to_parquet(landing / "tills_20240101_late.parquet")

    dagster.wait_until(lambda: sold(dagster) == [{"sold": 7}], "the rows of the late file are there")


def sold(dagster: Dagster) -> list[dict[str, int]]:
    """The rows of the day, which is not readable while it is being built again."""
    done = command.databuild(dagster.folder, dagster.home, "read", "sales@2024-01-01", "--json")
    return json.loads(done.out) if done.code == 0 else []


def test_an_operation_whose_executor_is_killed_ends_once_with_every_partition(dagster: Dagster) -> None:
    """Rules 9.5, 9.6"""
    dagster.databuild("build", *(f"prices@{day}" for day in DAYS))
    operation = str(dagster.databuild("operation", "run", "count", "prices", "--no-wait")["operation"])
    stuck = dagster.folder / "stuck"
    dagster.wait_until(stuck.exists, "a job is stuck")

    kill(int(stuck.read_text()))
    dagster.wait_until(lambda: view(dagster, operation).state is not OperationState.RUNNING, "the operation has ended")

    ended = view(dagster, operation)
    assert (ended.state, ended.done, ended.total, ended.report) == (OperationState.SUCCESS, 3, 3, {"rows": 3})
    assert len([*dagster.folder.glob("completed-*")]) == 1


def view(dagster: Dagster, id: str) -> OperationView:
    return DistributedOperationManager(Engine(dagster.store, SmallCatalog([]))).operation(OperationId.parse(id))


def test_the_pages_show_what_is_built_and_answer_over_http(dagster: Dagster) -> None:
    dagster.databuild("build", "prices@2024-01-01")
    root = f"http://127.0.0.1:{dagster.port}/databuild"

    with urllib.request.urlopen(f"{root}/", timeout=250) as page:
        text = page.read().decode()
    with urllib.request.urlopen(f"{root}/api/v1/partition?ref=prices@2024-01-01", timeout=250) as answer:
        partition = json.load(answer)

    assert "prices" in text
    assert partition["canonical"]["uuid"] == dagster.databuild("show", "prices@2024-01-01")["canonical"]["uuid"]


def test_a_build_on_postgresql_is_live_and_its_log_sound(tmp_path: Path) -> None:
    url = postgres_server().fresh_url()
    deployment = Dagster(tmp_path, SHOP, SETTINGS + on_postgres(url))

    built = deployment.databuild("build", "revenue@2024-01-01")

    assert built["refs"] == {"live": 1, "failed": 0}
    assert deployment.databuild("read", "revenue@2024-01-01") == [{"revenue": 6.0}]
    assert deployment.databuild("log", "check", "--deep") == {"ok": True, "violations": []}
    assert not (deployment.home / "databuild.db").exists()
