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

from examples.flights import nycflights

JANUARY = (1,)
YEAR = tuple(range(1, 13))
#: What one month per carrier takes.
MONTH_TABLES = ("flights", "weather", "airlines", "flight_delays", "carrier_monthly")
#: Everything the example builds of a year.
ALL_TABLES = (*MONTH_TABLES, "planes", "airport_daily", "by_destination", "by_hour", "year_report")
UTC = ("spark.sql.session.timeZone", "UTC")


def run(
    spark: SparkSession,
    out: str,
    months: Sequence[int] = JANUARY,
    tables: Sequence[str] = MONTH_TABLES,
) -> dict[str, float]:
    """Write the tables of `months` below `out`, a folder or a url; the seconds of each, and all together as `total`."""
    spark.conf.set(*UTC)

    def read(name: str) -> DataFrame:
        return spark.read.parquet(f"{out}/{name}")

    def write_flights() -> None:
        flights = spark.createDataFrame(nycflights.flights_in(months))
        write_by("date", with_date(flights), f"{out}/flights")

    def write_weather() -> None:
        weather = with_date(spark.createDataFrame(nycflights.weather_in(months)))
        write_by("date", weather.drop("year", "month", "day", "hour"), f"{out}/weather")

    def write_airlines() -> None:
        write(spark.createDataFrame(nycflights.all_airlines()), f"{out}/airlines")

    def write_planes() -> None:
        write(spark.createDataFrame(nycflights.all_planes()), f"{out}/planes")

    def write_flight_delays() -> None:
        write_by("date", flight_delays(*map(read, ("flights", "weather", "airlines"))), f"{out}/flight_delays")

    def write_airport_daily() -> None:
        write_by("date", airport_daily(read("flight_delays")), f"{out}/airport_daily")

    def write_carrier_monthly() -> None:
        write_by("month", carrier_monthly(read("flight_delays"), "month"), f"{out}/carrier_monthly")

    def write_by_destination() -> None:
        write_by("month", breakdown(read("flight_delays"), "dest"), f"{out}/by_destination")

    def write_by_hour() -> None:
        write_by("month", breakdown(read("flight_delays"), "hour"), f"{out}/by_hour")

    def write_year_report() -> None:
        report = year_report(read("carrier_monthly"))
        report.orderBy("carrier").collect()
        write(report, f"{out}/year_report")

    steps = {
        "flights": write_flights,
        "weather": write_weather,
        "airlines": write_airlines,
        "planes": write_planes,
        "flight_delays": write_flight_delays,
        "airport_daily": write_airport_daily,
        "carrier_monthly": write_carrier_monthly,
        "by_destination": write_by_destination,
        "by_hour": write_by_hour,
        "year_report": write_year_report,
    }
    return seconds_of_each({name: step for name, step in steps.items() if name in tables})


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


def airport_daily(flight_delays: DataFrame) -> DataFrame:
    return flight_delays.groupBy("date", "origin").agg(
        F.count("*").alias("flights"),
        F.count_if(F.col("dep_time").isNull()).alias("canceled"),
        F.avg("dep_delay").alias("mean_dep_delay"),
        F.max("wind_speed").alias("max_wind_speed"),
    )


def breakdown(flight_delays: DataFrame, by: str) -> DataFrame:
    return flight_delays.groupBy("month", by).agg(
        F.count("*").alias("flights"), F.avg("arr_delay").alias("mean_arr_delay")
    )


def year_report(carrier_monthly: DataFrame) -> DataFrame:
    return carrier_monthly.groupBy("carrier").agg(
        F.sum("flights").alias("flights"),
        F.sum("canceled").alias("canceled"),
        (F.sum("on_time") / F.sum("flights")).alias("share_on_time"),
    )


def write(table: DataFrame, where: str | Path) -> None:
    """Write to a folder or a url."""
    table.write.mode("overwrite").parquet(str(where))


def write_by(column: str, table: DataFrame, where: str) -> None:
    """One file per value of the column, which is what repartitioning by it first gives."""
    table.repartition(column).write.mode("overwrite").partitionBy(column).parquet(where)


def seconds_of_each(steps: dict[str, Callable[[], None]]) -> dict[str, float]:
    seconds: dict[str, float] = {}
    for name, step in steps.items():
        started = time.perf_counter()
        step()
        seconds[name] = time.perf_counter() - started
    return seconds | {"total": sum(seconds.values())}


def main() -> None:
    parser = argparse.ArgumentParser(description="Plain PySpark: the example's tables, twice in one session.")
    parser.add_argument("--months", type=int, nargs="+", default=JANUARY, choices=YEAR, metavar="1-12")
    parser.add_argument("--all-tables", action="store_true", help="not only those that a month per carrier takes")
    options = parser.parse_args()
    tables = ALL_TABLES if options.all_tables else MONTH_TABLES

    spark = SparkSession.builder.master("local[*]").appName("plain_spark").getOrCreate()
    with tempfile.TemporaryDirectory() as out:
        for attempt in ("first", "second"):
            seconds = run(spark, out, options.months, tables)
            print(attempt, "  ".join(f"{name} {taken:.2f} s" for name, taken in seconds.items()))
        flights = spark.read.parquet(f"{out}/carrier_monthly").agg(F.sum("flights")).collect()[0][0]
        print(f"{flights:,} flights")
    spark.stop()


if __name__ == "__main__":
    main()
