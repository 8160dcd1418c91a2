"""An author's tests: one line in `conftest.py`, no setting up, and nothing left when they have ended."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.cluster import wait_until

CONFTEST = 'pytest_plugins = ["databuild_dagster.pytest_plugin"]\n'

TESTS = """
import dagster as dg
import pandas as pd
from pyspark.sql import DataFrame, SparkSession

from databuild_dagster import BuildContext, databuild_asset, databuild_multi_asset, read, table
from databuild_dagster.testing import build_context

daily = dg.DailyPartitionsDefinition("2024-01-01")
DAYS = ["2024-01-01", "2024-01-02", "2024-01-03"]
A_RANGE = {"dagster/asset_partition_range_start": DAYS[0], "dagster/asset_partition_range_end": DAYS[2]}
SESSIONS = []


@databuild_asset(partitions_def=daily)
def orders(spark: SparkSession, context: BuildContext) -> DataFrame:
    SESSIONS.append(spark)
    return spark.createDataFrame([(context.partition_key, 1.5), ("x", 2.5)], "day string, amount double")


@databuild_asset(partitions_def=daily, batched=True)
def doubled(orders: DataFrame) -> DataFrame:
    return orders.withColumn("amount", orders.amount * 2)


@databuild_multi_asset(outs={"low": dg.AssetSpec("low"), "high": dg.AssetSpec("high")}, partitions_def=daily)
def split(orders: DataFrame) -> dict:
    return {"low": orders.where("amount < 2"), "high": orders.where("amount > 2")}


def test_the_session_is_small_and_in_utc(databuild_spark):
    conf = databuild_spark.conf
    assert conf.get("spark.sql.shuffle.partitions") == "2"
    assert conf.get("spark.sql.session.timeZone") == "UTC"
    assert conf.get("spark.ui.enabled") == "false"
    assert conf.get("spark.master") == "local[2]"


def test_a_function_is_called_with_the_session(databuild_spark):
    frame = databuild_spark.createDataFrame([("2024-01-01", 1.0)], "partition_key string, amount double")

    assert doubled(orders=frame).collect()[0].amount == 2.0
    assert build_context().spark is databuild_spark


def test_materialize_has_the_same_session(databuild_spark):
    assert dg.materialize([orders], partition_key=DAYS[0]).success

    assert SESSIONS.pop() is databuild_spark


def test_a_range_of_a_chain_with_a_batched_and_a_multi_asset_is_materialized_and_read():
    with dg.DagsterInstance.ephemeral() as instance:
        result = dg.materialize([orders, doubled, split], instance=instance, tags=A_RANGE)

        assert result.success
        assert len(result.get_asset_materialization_events()) == 4 * len(DAYS)
        assert read("low@2024-01-02", instance=instance).collect()[0].day == "2024-01-02"
        assert table("doubled", instance=instance).count() == 6
        assert set(table("high", format="pandas", instance=instance).partition_key) == set(DAYS)
"""

USES_NO_SPARK = """
import sys


def test_without_spark():
    assert not {"dagster", "pyspark", "pandas"} & set(sys.modules)
"""

BY_MATERIALIZE_ALONE = """
import dagster as dg
from pyspark.sql import DataFrame, SparkSession

from databuild_dagster import databuild_asset


@databuild_asset
def numbers(spark: SparkSession) -> DataFrame:
    return spark.range(3)


result = dg.materialize([numbers])
assert result.success
print(result.asset_materializations_for_node("numbers")[0].metadata["dagster/row_count"].value)
"""


def run(folder: Path, *command: str) -> "subprocess.CompletedProcess[str]":
    scratch = folder / "scratch"
    scratch.mkdir()
    environment = {name: value for name, value in os.environ.items() if name != "DAGSTER_HOME"}
    return subprocess.run(
        [sys.executable, *command],
        cwd=folder,
        env=environment | {"TMPDIR": str(scratch), "PYTEST_ADDOPTS": "-p no:cacheprovider"},
        capture_output=True,
        text=True,
        timeout=250,
        check=False,
    )


def servers_of(folder: Path) -> list[str]:
    """Processes that were started below a folder and are still there."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            command = (process / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
        except OSError:
            continue
        if str(folder) in command:
            found.append(command)
    return found


@pytest.mark.long("pytest and materialize run as a user starts them")
def test_the_fixture_is_what_materialize_uses_and_leaves_nothing(tmp_path: Path) -> None:
    (tmp_path / "conftest.py").write_text(CONFTEST)
    (tmp_path / "test_orders.py").write_text(TESTS)

    done = run(tmp_path, "-B", "-m", "pytest", "-q", "-p", "no:warnings", str(tmp_path))

    assert done.returncode == 0, done.stdout + done.stderr
    assert "4 passed" in done.stdout
    wait_until(lambda: servers_of(tmp_path) == [], "no server is left, nor the process beside it")
    assert list((tmp_path / "scratch").iterdir()) == []
    assert sorted(path.name for path in tmp_path.iterdir()) == ["conftest.py", "scratch", "test_orders.py"]


@pytest.mark.long("pytest and materialize run as a user starts them")
def test_materialize_needs_no_setting_up_and_leaves_nothing(tmp_path: Path) -> None:
    done = run(tmp_path, "-c", BY_MATERIALIZE_ALONE)

    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.strip() == "3"
    wait_until(lambda: servers_of(tmp_path) == [], "no server is left, nor the process beside it")
    assert list((tmp_path / "scratch").iterdir()) == []


BY_SAIL = """
import dagster as dg
from pyspark.sql import DataFrame, SparkSession

from databuild_dagster import databuild_asset, read


@databuild_asset
def numbers(spark: SparkSession) -> DataFrame:
    return spark.range(3)


def test_sail_serves_the_session_and_materialize(databuild_spark):
    from databuild_dagster.spark.session import engine_name

    assert engine_name(databuild_spark).startswith("Sail on localhost:")
    assert databuild_spark.conf.get("spark.sql.shuffle.partitions") == "2"
    with dg.DagsterInstance.ephemeral() as instance:
        dg.materialize([numbers], instance=instance)

        assert read("numbers", format="pandas", instance=instance).id.tolist() == [0, 1, 2]
"""


@pytest.mark.long("pytest and materialize run as a user starts them")
def test_sail_serves_the_sessions_of_tests_by_choice(tmp_path: Path) -> None:
    (tmp_path / "conftest.py").write_text(CONFTEST)
    (tmp_path / "test_numbers.py").write_text(BY_SAIL)

    done = run(tmp_path, "-B", "-m", "pytest", "-q", "-o", "databuild_spark=sail", str(tmp_path))

    assert done.returncode == 0, done.stdout + done.stderr
    wait_until(lambda: servers_of(tmp_path) == [], "no server is left, nor the process beside it")
    assert list((tmp_path / "scratch").iterdir()) == []


def test_another_choice_than_shared_or_sail_ends_the_run_before_its_tests(tmp_path: Path) -> None:
    (tmp_path / "conftest.py").write_text(CONFTEST)
    (tmp_path / "test_nothing.py").write_text(USES_NO_SPARK)

    done = run(tmp_path, "-B", "-m", "pytest", "-q", "-o", "databuild_spark=duck", str(tmp_path))

    assert done.returncode == 4
    assert "databuild_spark is 'duck' in pytest's settings; write shared or sail." in done.stderr


def test_the_plugin_costs_those_nothing_who_use_no_fixture(tmp_path: Path) -> None:
    (tmp_path / "conftest.py").write_text(CONFTEST)
    (tmp_path / "test_nothing.py").write_text(USES_NO_SPARK)

    done = run(tmp_path, "-B", "-m", "pytest", "-q", str(tmp_path))

    assert done.returncode == 0, done.stdout + done.stderr
