"""The second example: the flights arrive as files, hour by hour, and nobody wants anything by hand.

    landing/flights_*.parquet ── landed_flights ──┐
                                                  ├── hourly_joined ── hourly_delays ── daily_summary
    landing/weather_*.parquet ── landed_weather ──┘

Each hour is a lot. What lands is recorded by two boundaries, and each asset after them subscribes to what it reads, so a
day's summary is built when its last hour has come, and built anew when one comes late. `make lots-demo` plays it with
files of which some are missing, empty, late or sent twice on purpose (`land.py`).

Rows are filed under the hour of UTC for which their flight was scheduled: a lot is an interval of a UTC day.
"""

import os
from pathlib import Path

import dagster as dg
import pyspark.sql.functions as F
from pyspark.sql import DataFrame

from databuild_dagster import ByKey, DatabuildSpark, build_definitions, databuild_asset, databuild_boundary

#: Where files land, and how many days of them are played.
LANDING = Path(os.environ.get("LOTS_LANDING", Path(__file__).parents[2] / ".lots_demo" / "landing")).absolute()
DAYS = int(os.environ.get("LOTS_DAYS", "3"))

hourly = dg.HourlyPartitionsDefinition("2013-02-08-00:00", end_date=f"2013-02-{8 + DAYS:02}-00:00")
daily = dg.DailyPartitionsDefinition("2013-02-08", end_date=f"2013-02-{8 + DAYS:02}")

#: Sent for every hour, without rows where nobody flies. So an hour without a file is a gap.
landed_flights = databuild_boundary(
    "landed_flights",
    partitions_def=hourly,
    files=f"{LANDING}/flights_{{time:%Y%m%dT%H%M}}*.parquet",
    settle_seconds=0,  # The sender renames a file when it is whole.
    group_name="landed",
    description="Every flight scheduled to leave New York in that hour, as it was sent.",
)

#: Sent when there is some. So an hour without a file is an empty lot.
landed_weather = databuild_boundary(
    "landed_weather",
    partitions_def=hourly,
    files=f"{LANDING}/weather_{{time:%Y%m%dT%H%M}}*.parquet",
    settle_seconds=0,
    empty=True,
    group_name="landed",
    description="The readings of the three airports in that hour, as they were sent.",
)


@databuild_asset(
    partitions_def=hourly,
    group_name="hours",
    batched=True,
    subscribe=["landed_flights", "landed_weather"],
    follow_late=True,
)
def hourly_joined(landed_flights: DataFrame, landed_weather: DataFrame) -> DataFrame:
    """Each flight with the weather of its hour and origin, where there is any; made when both have come."""
    readings = landed_weather.select("partition_key", "origin", "temp", "wind_speed", "visib")
    return landed_flights.join(readings, ["partition_key", "origin"], "left")


@databuild_asset(
    partitions_def=hourly,
    group_name="hours",
    batched=True,
    subscribe="hourly_joined",
    follow_late=True,
    skip_empty=True,
)
def hourly_delays(hourly_joined: DataFrame) -> DataFrame:
    """What an hour was like at each airport; of an hour in which nobody flew this is not even called."""
    return hourly_joined.groupBy("partition_key", "origin").agg(
        F.count("*").alias("flights"),
        F.count_if(F.col("dep_time").isNull()).alias("canceled"),
        F.sum("dep_delay").alias("minutes_late"),
        F.max("wind_speed").alias("max_wind_speed"),
    )


@databuild_asset(
    partitions_def=daily,
    group_name="days",
    subscribe="hourly_delays",
    follow_late=True,
    parts=ByKey("hourly_delays", "origin"),
)
def daily_summary(hourly_delays: DataFrame) -> DataFrame:
    """A day at each airport; it waits for all of its hours. Each airport is a part: if one fails, the others are kept."""
    flown = F.sum("flights") - F.sum("canceled")
    return (
        hourly_delays.groupBy("origin")
        .agg(
            F.sum("flights").alias("flights"),
            F.sum("canceled").alias("canceled"),
            F.round(F.sum("minutes_late") / flown, 1).alias("mean_dep_delay"),
            F.max("max_wind_speed").alias("max_wind_speed"),
        )
        .orderBy("origin")
    )


defs = build_definitions(
    [landed_flights, landed_weather, hourly_joined, hourly_delays, daily_summary], spark=DatabuildSpark()
)
