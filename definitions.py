"""The example deployment: New York's flights of 2013, from raw rows to a report on the year.

    flights ──┐                 ┌── airport_daily
    weather ──┼── flight_delays ┼── carrier_monthly ── year_report
    airlines ─┘                 ├── by_destination, by_hour
    planes                      └┄┄ plane_history

A day of `flight_delays` is made of the same day of `flights` and `weather`, and of `airlines`, which has no
partitions; a month is made of its days, the year of its months. A plane's history needs the days on which it
flew, and only its function knows which.
"""

import os
from datetime import date, timedelta
from typing import Literal

import dagster as dg
import pyspark.sql.functions as F
from pyspark.sql import DataFrame, SparkSession

from databuild_dagster import (
    BuildContext,
    DatabuildSpark,
    PartitionRef,
    Wants,
    build_definitions,
    databuild_asset,
    databuild_multi_asset,
    want_schedule,
)
from examples.flights import nycflights

FIRST_DAY, LAST_DAY = date(2013, 1, 1), date(2013, 12, 31)

daily = dg.DailyPartitionsDefinition(start_date="2013-01-01", end_date="2014-01-01")
monthly = dg.MonthlyPartitionsDefinition(start_date="2013-01-01", end_date="2014-01-01")
tail_numbers = dg.DynamicPartitionsDefinition(name="tail_numbers")


@databuild_asset(partitions_def=daily, group_name="raw", batched=True)
def flights(context: BuildContext, spark: SparkSession) -> DataFrame:
    """Every flight scheduled to leave EWR, JFK or LGA that day."""
    return spark.createDataFrame(nycflights.flights_of(context.partition_keys))


@databuild_asset(partitions_def=daily, group_name="raw", batched=True)
def weather(context: BuildContext, spark: SparkSession) -> DataFrame:
    """Hourly readings at the three airports; the last day of the year has none."""
    return spark.createDataFrame(nycflights.weather_of(context.partition_keys), nycflights.WEATHER_COLUMNS_OF_DAYS)


@databuild_asset(group_name="raw")
def airlines(spark: SparkSession) -> DataFrame:
    """The names behind the carriers' codes."""
    return spark.createDataFrame(nycflights.all_airlines())


@databuild_asset(group_name="raw")
def planes(context: BuildContext, spark: SparkSession) -> DataFrame:
    """The registered planes; each of them may be asked for its history from now on."""
    context.instance.add_dynamic_partitions("tail_numbers", nycflights.tail_numbers())
    return spark.createDataFrame(nycflights.all_planes())


@databuild_asset(partitions_def=daily, group_name="delays", batched=True)
def flight_delays(flights: DataFrame, weather: DataFrame, airlines: DataFrame) -> DataFrame:
    """Each flight with the weather of its hour and origin, where there is any, and its airline's name."""
    in_its_weather = flights.join(weather, ["partition_key", "origin", "time_hour"], "left")
    return in_its_weather.join(airlines, "carrier", "left")


@databuild_asset(partitions_def=daily, group_name="reports", batched=True)
def airport_daily(flight_delays: DataFrame) -> DataFrame:
    """What a day was like at each of the three airports."""
    return flight_delays.groupBy("partition_key", "origin").agg(
        F.count("*").alias("flights"),
        F.count_if(F.col("dep_time").isNull()).alias("canceled"),
        F.avg("dep_delay").alias("mean_dep_delay"),
        F.max("wind_speed").alias("max_wind_speed"),
    )


def nobody_is_counted_twice(rows: DataFrame) -> DataFrame:
    """A flight is on time, late or canceled, and only one of them."""
    return rows.filter("on_time + canceled > flights")


@databuild_asset(partitions_def=monthly, group_name="reports", batched=True, blocking_checks=[nobody_is_counted_twice])
def carrier_monthly(flight_delays: DataFrame) -> DataFrame:
    """How punctual each carrier was; on time is less than 15 minutes late, as the regulator counts."""
    return flight_delays.groupBy("partition_key", "carrier").agg(
        F.count("*").alias("flights"),
        F.count_if(F.col("dep_time").isNull()).alias("canceled"),
        F.count_if(F.col("arr_delay") < 15).alias("on_time"),
        F.avg("arr_delay").alias("mean_arr_delay"),
    )


@databuild_multi_asset(
    outs={
        "destination": dg.AssetSpec("by_destination", group_name="reports", description="Flights to each airport."),
        "hour": dg.AssetSpec("by_hour", group_name="reports", description="How delays grow over a day."),
    },
    partitions_def=monthly,
    batched=True,
)
def breakdowns(flight_delays: DataFrame) -> dict[str, DataFrame]:
    def by(column: str) -> DataFrame:
        mean = F.avg("arr_delay").alias("mean_arr_delay")
        return flight_delays.groupBy("partition_key", column).agg(F.count("*").alias("flights"), mean)

    return {"destination": by("dest"), "hour": by("hour")}


@databuild_asset(group_name="reports")
def year_report(carrier_monthly: DataFrame, context: BuildContext) -> DataFrame:
    """The carriers' year; Dagster shows a chart of it beside the materialization."""
    report = carrier_monthly.groupBy("carrier").agg(
        F.sum("flights").alias("flights"),
        F.sum("canceled").alias("canceled"),
        (F.sum("on_time") / F.sum("flights")).alias("share_on_time"),
    )
    rows = report.orderBy(F.desc("share_on_time")).collect()
    bars = [f"| {row.carrier} | {'█' * round(40 * row.share_on_time)} | {row.share_on_time:.0%} |" for row in rows]
    chart = "\n".join(["| carrier | | on time |", "|---|---|---|", *bars])
    context.add_output_metadata({"on_time": dg.MetadataValue.md(chart), "flights": sum(row.flights for row in rows)})
    return report


@databuild_asset(partitions_def=tail_numbers, group_name="reports")
def plane_history(context: BuildContext) -> DataFrame:
    """Where a plane has been: it needs the days on which it flew, and no others."""
    tail_number = context.partition_key
    days = [PartitionRef("flight_delays", day) for day in nycflights.days_flown(tail_number)]
    flown: DataFrame = context.read(*days).filter(F.col("tailnum") == tail_number)
    return flown.select("time_hour", "origin", "dest", "dep_delay", "arr_delay", "wind_speed").orderBy("time_hour")


def _last_month_of_2013(context: dg.ScheduleEvaluationContext) -> list[PartitionRef]:
    last_month = context.scheduled_execution_time.replace(day=1) - timedelta(days=1)
    return [PartitionRef("carrier_monthly", f"2013-{last_month.month:02}-01")]


#: On the first of a month, last month's table. The data ends with 2013, so that year is played again.
monthly_report = want_schedule(name="monthly_report", cron_schedule="0 6 1 * *", refs=_last_month_of_2013)


@dg.sensor(minimum_interval_seconds=60)
def replay(context: dg.SensorEvaluationContext, wants: Wants) -> dg.SkipReason:
    """Plays 2013 as if it arrived now: at every tick one more day is wanted. Its cursor is the next day."""
    day = date.fromisoformat(context.cursor) if context.cursor else FIRST_DAY
    if day > LAST_DAY:
        return dg.SkipReason("All of 2013 is wanted.")
    wants.create([PartitionRef("flight_delays", day.isoformat())], comment="replay of 2013")
    context.update_cursor((day + timedelta(days=1)).isoformat())
    return dg.SkipReason(f"Recorded a want for the flights of {day}; the orchestrator builds them.")


#: `make demo SPARK=sail` needs no Java.
_MODE: Literal["shared", "sail"] = "sail" if os.environ.get("EXAMPLE_SPARK") == "sail" else "shared"

defs = build_definitions(
    [
        flights,
        weather,
        airlines,
        planes,
        flight_delays,
        airport_daily,
        carrier_monthly,
        breakdowns,
        year_report,
        plane_history,
    ],
    spark=DatabuildSpark(mode=_MODE),
    schedules=[monthly_report],
    sensors=[replay],
)
