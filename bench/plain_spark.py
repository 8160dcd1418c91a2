"""The floor: one plain PySpark script that writes the tables of the example, the way one would by hand.

Every table is written once for the whole range, daily ones partitioned by date. No databuild, no Dagster, no
record of what was built. `run` may be called twice in one session: the second time nothing is cold any more,
and that is the floor which other ways of writing the same tables are held against.

    python -m bench.plain_spark --months 1 2 3
"""

import argparse
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import pyspark.sql.functions as F
from pyspark.sql import DataFrame, SparkSession

import nycflights

JANUARY = (1,)
UTC = ("spark.sql.session.timeZone", "UTC")


def run(spark: SparkSession, out_dir: str | Path, months: Sequence[int] = JANUARY) -> dict[str, float]:
    """Write the five tables of `months` below `out_dir`; the seconds of each, and all together as `total`."""
    spark.conf.set(*UTC)
    out = Path(out_dir)

    def write_flights() -> None:
        flights = spark.createDataFrame(nycflights.flights_in(months))
        write_by("date", with_date(flights), out / "flights")

    def write_weather() -> None:
        weather = with_date(spark.createDataFrame(nycflights.weather_in(months)))
        write_by("date", weather.drop("year", "month", "day", "hour"), out / "weather")

    def write_airlines() -> None:
        write(spark.createDataFrame(nycflights.all_airlines()), out / "airlines")

    def write_flight_delays() -> None:
        tables = (spark.read.parquet(str(out / name)) for name in ("flights", "weather", "airlines"))
        write_by("date", flight_delays(*tables), out / "flight_delays")

    def write_carrier_monthly() -> None:
        delays = spark.read.parquet(str(out / "flight_delays"))
        write_by("month", carrier_monthly(delays, "month"), out / "carrier_monthly")

    return seconds_of_each(
        {
            "flights": write_flights,
            "weather": write_weather,
            "airlines": write_airlines,
            "flight_delays": write_flight_delays,
            "carrier_monthly": write_carrier_monthly,
        }
    )


def with_date(table: DataFrame) -> DataFrame:
    return table.withColumn("date", F.make_date("year", "month", "day"))


def flight_delays(flights: DataFrame, weather: DataFrame, airlines: DataFrame) -> DataFrame:
    return flights.join(weather, ["date", "origin", "time_hour"], "left").join(airlines, "carrier", "left")


def carrier_monthly(flight_delays: DataFrame, *by: str) -> DataFrame:
    return flight_delays.groupBy(*by, "carrier").agg(
        F.count("*").alias("flights"),
        F.count_if(F.col("dep_time").isNull()).alias("canceled"),
        F.count_if(F.col("arr_delay") < 15).alias("on_time"),
        F.avg("arr_delay").alias("mean_arr_delay"),
    )


def write(table: DataFrame, where: Path) -> None:
    table.write.mode("overwrite").parquet(str(where))


def write_by(column: str, table: DataFrame, where: Path) -> None:
    """One file per value of the column, which is what repartitioning by it first gives."""
    table.repartition(column).write.mode("overwrite").partitionBy(column).parquet(str(where))


def seconds_of_each(steps: dict[str, Callable[[], None]]) -> dict[str, float]:
    seconds: dict[str, float] = {}
    for name, step in steps.items():
        started = time.perf_counter()
        step()
        seconds[name] = time.perf_counter() - started
    return seconds | {"total": sum(seconds.values())}


def main() -> None:
    parser = argparse.ArgumentParser(description="Plain PySpark: the example's tables, twice in one session.")
    parser.add_argument("--months", type=int, nargs="+", default=JANUARY, choices=range(1, 13), metavar="1-12")
    months: list[int] = parser.parse_args().months

    spark = SparkSession.builder.master("local[*]").appName("plain_spark").getOrCreate()
    with tempfile.TemporaryDirectory() as out:
        for attempt in ("first", "second"):
            seconds = run(spark, out, months)
            print(attempt, "  ".join(f"{name} {taken:.2f} s" for name, taken in seconds.items()))
        flights = spark.read.parquet(f"{out}/carrier_monthly").agg(F.sum("flights")).collect()[0][0]
        print(f"{flights:,} flights")
    spark.stop()


if __name__ == "__main__":
    main()
