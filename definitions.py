"""The example deployment: New York's flights of 2013, from raw rows to a monthly table per carrier.

    flights ──┐
    weather ──┼── flight_delays ── carrier_monthly
    airlines ─┘

A day of `flight_delays` is made of the same day of `flights` and `weather`, and of `airlines`, which has no
partitions; a month of `carrier_monthly` is made of its days.
"""

from datetime import date, timedelta

import dagster as dg
import pyspark.sql.functions as F
from pyspark.sql import DataFrame, SparkSession

import nycflights
from databuild_dagster import (
    BuildContext,
    DatabuildSpark,
    PartitionRef,
    Wants,
    build_definitions,
    databuild_asset,
    want_schedule,
)

FIRST_DAY, LAST_DAY = date(2013, 1, 1), date(2013, 12, 31)

daily = dg.DailyPartitionsDefinition(start_date="2013-01-01", end_date="2014-01-01")
monthly = dg.MonthlyPartitionsDefinition(start_date="2013-01-01", end_date="2014-01-01")


@databuild_asset(partitions_def=daily, group_name="raw")
def flights(context: BuildContext, spark: SparkSession) -> DataFrame:
    """Every flight scheduled to leave EWR, JFK or LGA that day."""
    return spark.createDataFrame(nycflights.flights_on(context.partition_key))


@databuild_asset(partitions_def=daily, group_name="raw")
def weather(context: BuildContext, spark: SparkSession) -> DataFrame:
    """Hourly readings at the three airports; the last day of the year has none."""
    return spark.createDataFrame(nycflights.weather_on(context.partition_key), nycflights.WEATHER_COLUMNS)


@databuild_asset(group_name="raw")
def airlines(spark: SparkSession) -> DataFrame:
    """The names behind the carriers' codes."""
    return spark.createDataFrame(nycflights.all_airlines())


@databuild_asset(partitions_def=daily, group_name="delays")
def flight_delays(flights: DataFrame, weather: DataFrame, airlines: DataFrame) -> DataFrame:
    """Each flight with the weather of its hour and origin, where there is any, and its airline's name."""
    return flights.join(weather, ["origin", "time_hour"], "left").join(airlines, "carrier", "left")


@databuild_asset(partitions_def=monthly, group_name="delays")
def carrier_monthly(flight_delays: DataFrame) -> DataFrame:
    """How punctual each carrier was; on time is less than 15 minutes late, as the regulator counts."""
    return flight_delays.groupBy("carrier").agg(
        F.count("*").alias("flights"),
        F.count_if(F.col("dep_time").isNull()).alias("canceled"),
        F.count_if(F.col("arr_delay") < 15).alias("on_time"),
        F.avg("arr_delay").alias("mean_arr_delay"),
    )


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


defs = build_definitions(
    [flights, weather, airlines, flight_delays, carrier_monthly],
    spark=DatabuildSpark(),
    schedules=[monthly_report],
    sensors=[replay],
)
