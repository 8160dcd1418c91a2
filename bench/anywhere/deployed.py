"""The example's assets by a Spark and in a warehouse that the environment names. A code location of the bench."""

import os

import definitions as example
from databuild_dagster import DatabuildSpark, build_definitions

defs = build_definitions(
    [
        example.flights,
        example.weather,
        example.airlines,
        example.planes,
        example.flight_delays,
        example.airport_daily,
        example.carrier_monthly,
        example.breakdowns,
        example.year_report,
    ],
    spark=DatabuildSpark(mode="remote", url=os.environ["BENCH_SPARK"]),
    warehouse=os.environ["BENCH_WAREHOUSE"],
)
