"""What the example costs without us: plain Dagster assets on Spark, one Dagster run per day.

The assets are what one writes after reading the documentation of dagster-pyspark: `LazyPySparkResource`, a
path per partition, inputs read by path. Each day is a run of its own, in a process of its own, as a backfill
gives it, started by `dagster asset materialize`. The executor is the one a plain user gets, multiprocess:
every step is another process with a Spark of its own. `--in-process` measures the user who knows better: one
process and one Spark for each run.

    python -m bench.plain_dagster --days 5
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from datetime import date, timedelta
from pathlib import Path
from typing import NamedTuple

import dagster as dg
import pyspark.sql.functions as F
from dagster_pyspark import LazyPySparkResource
from pyspark.sql import DataFrame

from bench.plain_spark import UTC, carrier_monthly, flight_delays, write
from examples.flights import nycflights

OUT = "PLAIN_DAGSTER_OUT"
DAILY_ASSETS = ("flights", "weather", "flight_delays")
MAX_SECONDS_PER_RUN = 300

daily = dg.DailyPartitionsDefinition(start_date="2013-01-01", end_date="2014-01-01")
monthly = dg.MonthlyPartitionsDefinition(start_date="2013-01-01", end_date="2014-01-01")


class Cost(NamedTuple):
    """`partition` is one of the three tables of one day, so a run of a day builds three."""

    seconds_per_run: float
    seconds_per_partition: float
    runs: list[float]


def place(table: str, partition: str = "all") -> Path:
    return Path(os.environ[OUT]) / table / partition


@dg.asset(name="flights", partitions_def=daily)
def flights_asset(context: dg.AssetExecutionContext, pyspark: LazyPySparkResource) -> None:
    day = context.partition_key
    table = pyspark.spark_session.createDataFrame(nycflights.flights_on(day))
    write(table.withColumn("date", F.to_date(F.lit(day))), place("flights", day))


@dg.asset(name="weather", partitions_def=daily)
def weather_asset(context: dg.AssetExecutionContext, pyspark: LazyPySparkResource) -> None:
    day = context.partition_key
    table = pyspark.spark_session.createDataFrame(nycflights.weather_on(day), nycflights.WEATHER_COLUMNS)
    write(table.withColumn("date", F.to_date(F.lit(day))), place("weather", day))


@dg.asset(name="airlines")
def airlines_asset(pyspark: LazyPySparkResource) -> None:
    write(pyspark.spark_session.createDataFrame(nycflights.all_airlines()), place("airlines"))


@dg.asset(name="flight_delays", partitions_def=daily, deps=[flights_asset, weather_asset, airlines_asset])
def flight_delays_asset(context: dg.AssetExecutionContext, pyspark: LazyPySparkResource) -> None:
    day = context.partition_key
    flights = read(pyspark, place("flights", day))
    weather = read(pyspark, place("weather", day))
    airlines = read(pyspark, place("airlines"))
    write(flight_delays(flights, weather, airlines), place("flight_delays", day))


@dg.asset(name="carrier_monthly", partitions_def=monthly, deps=[flight_delays_asset])
def carrier_monthly_asset(context: dg.AssetExecutionContext, pyspark: LazyPySparkResource) -> None:
    window = context.partition_time_window
    days = daily.get_partition_keys_in_time_window(window)
    delays = read(pyspark, *(place("flight_delays", day) for day in days))
    write(carrier_monthly(delays), place("carrier_monthly", context.partition_key))


def read(pyspark: LazyPySparkResource, *places: Path) -> DataFrame:
    table: DataFrame = pyspark.spark_session.read.parquet(*map(str, places))
    return table


defs = dg.Definitions(
    assets=[flights_asset, weather_asset, airlines_asset, flight_delays_asset, carrier_monthly_asset],
    resources={
        "pyspark": LazyPySparkResource(
            spark_config=dict([UTC, ("spark.master", "local[*]"), ("spark.ui.enabled", "false")])
        )
    },
)


def measure(days: int = 5, *, assets: Sequence[str] = DAILY_ASSETS, in_process: bool = False) -> Cost:
    """Build assets for the first days of January, one run a day; `airlines`, which they all read, is not counted.

    With one asset it is one run per partition, as a backfill of that asset has it.
    """
    with tempfile.TemporaryDirectory() as scratch:
        home = Path(scratch) / "home"
        home.mkdir()
        (home / "dagster.yaml").write_text("telemetry: {enabled: false}\n")
        environment = os.environ | {"DAGSTER_HOME": str(home), OUT: str(Path(scratch) / "tables")}

        materialize(["airlines"], environment, in_process=in_process)
        keys = [str(date(2013, 1, 1) + timedelta(days=n)) for n in range(days)]
        runs = [materialize(assets, environment, partition=key, in_process=in_process) for key in keys]
    seconds_per_run = statistics.median(runs)
    return Cost(seconds_per_run, seconds_per_run / len(assets), runs)


def materialize(
    assets: Sequence[str],
    environment: dict[str, str],
    *,
    partition: str | None = None,
    in_process: bool = False,
) -> float:
    """One Dagster run; the seconds from the start of its process to the end."""
    command = [sys.executable, "-m", "dagster", "asset", "materialize", "-m", "bench.plain_dagster"]
    command += ["--select", ",".join(assets)]
    if partition:
        command += ["--partition", partition]
    if in_process:
        command += ["--config-json", json.dumps({"execution": {"config": {"in_process": {}}}})]

    started = time.perf_counter()
    done = subprocess.run(
        command,
        cwd=Path(__file__).parent.parent,
        env=environment,
        capture_output=True,
        text=True,
        timeout=MAX_SECONDS_PER_RUN,
        check=False,
    )
    if done.returncode:
        raise RuntimeError(f"Plain Dagster failed at {assets} of {partition}:\n{done.stderr[-4000:]}")
    return time.perf_counter() - started


def main() -> None:
    parser = argparse.ArgumentParser(description="Plain Dagster: days of the example, one run each.")
    parser.add_argument("--days", type=int, default=5)
    parser.add_argument("--in-process", action="store_true", help="all steps in the process of the run")
    options = parser.parse_args()

    cost = measure(options.days, in_process=options.in_process)
    print("  ".join(f"{seconds:.1f} s" for seconds in cost.runs))
    print(f"{cost.seconds_per_run:.1f} s per run of a day, {cost.seconds_per_partition:.1f} s per partition")


if __name__ == "__main__":
    main()
