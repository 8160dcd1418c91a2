"""A user's project with one asset for each way of working with Spark. `SMOKE_SPARK` has the arguments of `DatabuildSpark`."""

import json
import os

import dagster as dg
import early
import pandas as pd
import pyspark.sql.functions as F
from pyspark.sql import DataFrame, SparkSession

from databuild_dagster import (
    BuildContext,
    ByKey,
    DatabuildSpark,
    PartitionRef,
    build_definitions,
    databuild_asset,
)

SPARK = json.loads(os.environ.get("SMOKE_SPARK", "{}"))
daily = dg.DailyPartitionsDefinition("2024-01-01", end_date="2024-01-04")


@databuild_asset(partitions_def=daily)
def orders(context: BuildContext, spark: SparkSession) -> DataFrame:
    """Six orders a day of two shops, as a Spark frame with the types that differ between versions."""
    return spark.range(6).select(
        F.col("id"),
        F.when(F.col("id") % 2 == 0, "north").otherwise("south").alias("shop"),
        (F.col("id") * 1.5).alias("amount"),
        F.lit(context.partition_key).cast("date").alias("day"),
        F.lit(f"{context.partition_key} 12:30:00").cast("timestamp").alias("sold_at"),
        F.lit("12.34").cast("decimal(10,2)").alias("price"),
        F.array(F.lit("a"), F.lit("b")).alias("labels"),
    )


@databuild_asset
def rates() -> pd.DataFrame:
    """A pandas frame without partitions, which no other asset names as an input."""
    return pd.DataFrame({"shop": ["north", "south"], "rate": [2, 3]})


@databuild_asset(partitions_def=daily)
def turnover(context: BuildContext, orders: DataFrame) -> DataFrame:
    """Finds at run time that it needs the rates: a dependency miss on its first run."""
    rates = context.read(PartitionRef("rates"))
    joined = orders.join(rates, "shop").withColumn("turnover", F.col("amount") * F.col("rate"))
    return joined.groupBy("shop").agg(F.sum("turnover").alias("turnover"))


@databuild_asset(partitions_def=daily, batched=True)
def doubled(turnover: DataFrame) -> DataFrame:
    """All days in one call and one Spark job."""
    return turnover.withColumn("turnover", F.col("turnover") * 2)


@databuild_asset(partitions_def=daily, parts=ByKey("orders", "shop"), code_version="1")
def by_shop(orders: pd.DataFrame) -> pd.DataFrame:
    """A part for each shop, as pandas frames."""
    return orders.groupby("shop", as_index=False).agg(amount=("amount", "sum"), n=("id", "count"))


@databuild_asset(partitions_def=daily)
def longest(orders: DataFrame) -> DataFrame:
    """A Python function in Spark's workers, decorated inside the call."""

    @F.udf("int")
    def length(shop: str) -> int:
        return len(shop)

    return orders.select(length("shop").alias("letters")).distinct()


@databuild_asset(partitions_def=daily)
def counted(orders: DataFrame) -> DataFrame:
    """Python functions decorated when their module was imported."""
    both = orders.select(early.letters("shop").alias("letters"), early.letters_by_series("shop").alias("again"))
    return both.distinct()


@databuild_asset(partitions_def=daily)
def newest(orders: DataFrame) -> DataFrame:
    """A column and a window made when their module was imported. A JVM of this process takes those of a session alone."""
    if SPARK.get("mode") == "classic":
        return orders.where("id >= 4").select("id", (F.col("id") * 2).alias("twice"))
    return orders.select("id", early.TWICE, early.NEWEST_FIRST).where("place = 1").drop("place")


defs = build_definitions(
    [orders, rates, turnover, doubled, by_shop, longest, counted, newest],
    spark=DatabuildSpark(**SPARK),
    warehouse=os.environ.get("SMOKE_WAREHOUSE"),
)
