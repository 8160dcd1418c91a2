"""The code location of the lab. `LAB_VERSION`, as the tag of an image, chooses between two versions of its code.

Version 2 has an asset more, and other code of the same arithmetic. `judge` has the arithmetic in its own words.
"""

from __future__ import annotations

import os
import time

import dagster as dg
import pandas as pd
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from databuild_dagster import (
    BuildContext,
    DatabuildSpark,
    DistributedOperation,
    build_definitions,
    databuild_asset,
    databuild_boundary,
)

VERSION = os.environ.get("LAB_VERSION", "1")
#: Longer than a lease: a fault that begins in the function of `slow` may end after it.
SLOW_SECONDS = float(os.environ.get("LAB_SLOW_SECONDS", "20"))
keys = dg.StaticPartitionsDefinition([f"{number:03}" for number in range(1000)])


@databuild_asset(partitions_def=keys, code_version=VERSION)
def numbers(context: BuildContext) -> pd.DataFrame:
    time.sleep(0.5)
    return pd.DataFrame({"value": [int(context.partition_key) * n for n in range(10)]})


@databuild_asset(partitions_def=keys)
def slow(numbers: pd.DataFrame) -> pd.DataFrame:
    print("the function of slow begins", flush=True)
    time.sleep(SLOW_SECONDS)
    return pd.DataFrame({"value": [numbers["value"].max() + 1]})


@databuild_asset(partitions_def=keys)
def squares(numbers: DataFrame) -> DataFrame:
    return numbers.select((F.col("value") * F.col("value")).alias("value"))


@databuild_asset(partitions_def=keys, batched=True)
def totals(squares: DataFrame) -> DataFrame:
    return squares.groupBy("partition_key").agg(F.sum("value").alias("value"))


@databuild_asset(partitions_def=keys)
def spark_only(context: BuildContext, spark: SparkSession) -> DataFrame:
    return spark.range(int(context.partition_key)).select((F.col("id") + 1).alias("value"))


@databuild_asset(partitions_def=keys)
def extra(context: BuildContext) -> pd.DataFrame:
    return pd.DataFrame({"value": [-int(context.partition_key)]})


arrived = databuild_boundary(
    "arrived",
    partitions_def=dg.DailyPartitionsDefinition("2013-01-01", end_date="2013-03-01"),
    files="s3://lake/landing/{time:%Y%m%d}-*.parquet",
    interval_seconds=15,
)


class Count(DistributedOperation):
    """Counts the rows of each partition."""

    type_name = "count"

    def start_or_resume_job(self, arg, partition, context):  # type: ignore[no-untyped-def]
        time.sleep(1.0)
        context.mark_job_complete(True, {"rows": context.manifest.rows})

    def complete_operation(self, arg, dataset, completion):  # type: ignore[no-untyped-def]
        return {"rows": sum(mark.detail["rows"] for mark in completion.marks.values())}


defs = build_definitions(
    [numbers, slow, squares, totals, spark_only, arrived, *([extra] if VERSION == "2" else [])],
    operations=[Count()],
    location="lab",
    warehouse="s3://lake/warehouse",
    spark=DatabuildSpark(mode="remote", url=os.environ.get("LAB_SPARK", "sc://spark:50051")),
)
