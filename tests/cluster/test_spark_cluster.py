"""The example's January on a standalone cluster of hosts, whose driver is in the process that builds (how-to/spark.md)."""

from __future__ import annotations

import json
import re
import shutil
import sys
from collections.abc import Iterator

import pandas as pd
import pytest

from examples.flights import nycflights
from tests.support.cluster import wait_until
from tests.support.project import PLAIN_DAGSTER_YAML

from .hosts import SHARED, why_not
from .spark_cluster import BUILDER, CONFIG, WORKERS, SparkCluster

pytestmark = [
    pytest.mark.skipif(why_not() is not None, reason=why_not() or ""),
    pytest.mark.long("executors of other hosts connect to the driver, and die"),
    pytest.mark.timeout(2400),
]

MONTH = "2013-01-01"
DEFINITIONS = f"""
import socket
import time
from pathlib import Path

from pyspark.sql import DataFrame

from databuild_dagster import DatabuildSpark, build_definitions, databuild_asset
from definitions import airlines, carrier_monthly, flight_delays, flights, monthly, weather

GATE = "{SHARED}/gate"


@databuild_asset(partitions_def=monthly)
def gated(flight_delays: DataFrame) -> DataFrame:
    '''Each task that has read its part of the shuffle waits for the file `go`, and says so by a file with its host's name.'''
    folder = GATE

    def count(rows):
        import pandas as pd
        from pyspark import TaskContext

        gate = Path(folder)
        until = time.monotonic() + 300
        while gate.exists() and not (gate / "go").exists():
            (gate / f"{{socket.gethostname()}}-{{TaskContext.get().taskAttemptId()}}").touch()
            assert time.monotonic() < until, "nobody opened the gate"
            time.sleep(0.05)
        return pd.DataFrame({{"carrier": rows["carrier"].iloc[:1], "flights": [len(rows)]}})

    counted = flight_delays.repartition(2, "carrier").groupBy("carrier").applyInPandas(count, "carrier string, flights long")
    # A second shuffle: the package writes few rows in one task, and Spark would count in that task, too.
    return counted.repartition(1)


defs = build_definitions(
    [airlines, carrier_monthly, flight_delays, flights, gated, weather],
    spark=DatabuildSpark(mode="remote", url={{url!r}}, spark_config={CONFIG!r}),
    warehouse="{SHARED}/warehouse",
)
"""

#: A session whose only job is not done in time.
WAITING = """
import sys
from databuild_dagster.spark.reach import check_answers
from databuild_dagster.spark.session import open_session
from databuild_dagster.spark.settings import SparkSettings

check_answers(open_session(SparkSettings(mode="remote", url=sys.argv[1], config={"spark.driver.memory": "512m"})), 4.0)
"""


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkCluster]:
    with SparkCluster(tmp_path_factory.mktemp("spark")) as made:
        home = made.builder.folder / "home"
        home.mkdir()
        (home / "dagster.yaml").write_text(PLAIN_DAGSTER_YAML)
        (made.builder.folder / "january.py").write_text(DEFINITIONS.replace("{url!r}", repr(made.url)))
        (made.builder.folder / "workspace.yaml").write_text("load_from: [{python_file: january.py}]\n")
        yield made


@pytest.fixture(scope="module")
def january(cluster: SparkCluster) -> pd.DataFrame:
    """The report of a month, built with the three batches of days that it needs."""
    built = cluster.databuild("build", f"carrier_monthly@{MONTH}")
    assert built.returncode == 0, built.stderr
    return rows_of(cluster, f"carrier_monthly@{MONTH}")


def rows_of(cluster: SparkCluster, ref: str) -> pd.DataFrame:
    done = cluster.databuild("read", ref, "--json")
    assert done.returncode == 0, done.stderr
    return pd.DataFrame(json.loads(done.stdout)).set_index("carrier").sort_index()


def test_a_month_that_a_cluster_of_hosts_built_has_the_rows_of_pandas(january: pd.DataFrame) -> None:
    flights = nycflights.flights_in([1]).to_pandas()

    by_carrier = flights.groupby("carrier")
    expected = pd.DataFrame(
        {
            "flights": by_carrier.size(),
            "canceled": by_carrier["dep_time"].apply(lambda times: times.isna().sum()),
            "on_time": by_carrier["arr_delay"].apply(lambda delays: (delays < 15).sum()),
            "mean_arr_delay": by_carrier["arr_delay"].mean(),
        }
    )
    pd.testing.assert_frame_equal(january[list(expected)], expected, check_dtype=False)


def test_an_operation_runs_its_jobs_on_the_cluster(cluster: SparkCluster, january: pd.DataFrame) -> None:
    rule = ("--range", "flights=1000:")

    done = cluster.databuild("operation", "run", "validate", "carrier_monthly", *rule, "--local", "--json")

    assert done.returncode == 1, done.stderr
    assert json.loads(done.stdout)["rules"][0]["offending"] == (january["flights"] < 1000).sum() > 0


def test_a_build_is_right_after_an_executor_and_a_worker_are_killed_in_a_shuffle(
    cluster: SparkCluster, january: pd.DataFrame
) -> None:
    gate = cluster.shared / "gate"
    gate.mkdir()
    command = [sys.executable, "-m", "databuild_dagster", "build", f"gated@{MONTH}"]
    build = cluster.builder.spawn(command, log="gated.log", environment=cluster.environment())

    def wait_in_gate(host: str) -> None:
        waits = f"a task waits on host {host}"
        wait_until(lambda: build.poll() is not None or list(gate.glob(f"{host}-*")), waits, seconds=1200)
        assert build.poll() is None, (cluster.builder.folder / "gated.log").read_text()

    one, two = WORKERS
    wait_in_gate(one)
    wait_in_gate(two)
    cluster.kill_executor(one)
    for waited in gate.glob(f"{one}-*"):
        waited.unlink()
    wait_in_gate(one)
    cluster.lab[two].kill()
    (gate / "go").touch()

    try:
        assert build.wait(1200) == 0, (cluster.builder.folder / "gated.log").read_text()
    finally:
        shutil.rmtree(gate)
        cluster.lab[two].start()
        cluster.start_worker(two)
    assert rows_of(cluster, f"gated@{MONTH}")["flights"].to_dict() == january["flights"].to_dict()


def test_workers_that_do_not_reach_the_driver_are_one_sentence(cluster: SparkCluster) -> None:
    cluster.lab.cut(BUILDER, way="in", peers=WORKERS)

    done = cluster.builder.run([sys.executable, "-c", WAITING, cluster.url], environment=cluster.environment())

    cluster.lab.heal(BUILDER)
    assert re.search(
        rf"The Spark of {cluster.url} runs no job: a job of one row is not done after 4 s on workers that connect to this process "
        rf"at {cluster.builder.address}:\d+\.",
        done.stderr,
    ), done.stderr
