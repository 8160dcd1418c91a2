"""Builds by a Spark that shares no disk with this process (rule 10.9)."""

import pytest

from databuild_dagster.bindings.reading.spark_resource import close_sessions

from .conftest import Project

pytestmark = pytest.mark.long

DEFINITIONS = """
import dagster as dg
import pyspark.sql.functions as F
from pyspark.sql import DataFrame, SparkSession

from databuild_dagster import BuildContext, DatabuildSpark, build_definitions, databuild_asset


@databuild_asset
def numbers(spark: SparkSession) -> DataFrame:
    return spark.range(3)


daily = dg.DailyPartitionsDefinition("2024-01-29", end_date="2024-02-01")
monthly = dg.MonthlyPartitionsDefinition("2024-01-01", end_date="2024-02-01")


@databuild_asset(partitions_def=daily)
def orders(context: BuildContext, spark: SparkSession) -> DataFrame:
    return spark.range(2).select(F.lit(context.partition_key).alias("day"), "id")


@databuild_asset(partitions_def=daily, batched=True)
def doubled(orders: DataFrame) -> DataFrame:
    return orders.select("partition_key", (F.col("id") * 2).alias("id"))


@databuild_asset(partitions_def=monthly)
def total(doubled: DataFrame) -> DataFrame:
    return doubled.agg(F.sum("id").alias("total"))


defs = build_definitions([numbers, orders, doubled, total], spark=DatabuildSpark(mode="remote", url={url!r}), warehouse={warehouse!r})
"""


@pytest.fixture(autouse=True)
def closed_sessions():
    yield
    close_sessions()


def test_a_spark_that_sees_no_disk_of_ours_is_refused_at_once(project: Project, running_sail) -> None:
    warehouse = str(project.folder / "warehouse")
    project.define(DEFINITIONS.format(url=running_sail.url, warehouse=warehouse))

    done = project.call("build", "numbers")

    assert done.code == 2, done.err
    assert (
        f"The warehouse {warehouse} cannot be shared with this process by the Spark of {running_sail.url}" in done.err
    )
    assert "Traceback" not in done.err
    assert (project.queries.job_runs(), project.queries.wants()) == ([], [])


def test_a_bucket_is_written_and_read_by_a_spark_without_our_disk(project: Project, running_sail, s3, bucket) -> None:
    project.define(DEFINITIONS.format(url=running_sail.url, warehouse=f"s3://{bucket}/warehouse"))

    project.build("total@2024-01-01")

    assert project.ask("read", "total@2024-01-01") == [{"total": 6}]
    (file, *_) = project.ask("show", "doubled@2024-01-30")["canonical"]["files"]
    assert file.startswith(f"s3://{bucket}/warehouse/doubled/data/attempt=")
    assert project.ask("log", "check", "--deep") == {"ok": True, "violations": []}
    assert project.ask("log", "check", "--deep", "--contents")["ok"]
    assert not [key for key in s3.keys(bucket) if "/.probe" in key]


FAILING = """
from pathlib import Path

import dagster as dg
import pyspark.sql.functions as F
from pyspark.sql import DataFrame, SparkSession

from databuild_dagster import DatabuildSpark, build_definitions, databuild_asset

daily = dg.DailyPartitionsDefinition("2024-01-29", end_date="2024-02-01")


@databuild_asset(partitions_def=daily)
def shaped(spark: SparkSession) -> DataFrame:
    changed = (Path(__file__).parent / "changed").exists()
    return spark.range(3).toDF("n") if changed else spark.range(3)


@databuild_asset(partitions_def=daily, batched=True)
def stray(spark: SparkSession) -> DataFrame:
    return spark.range(2).select("id", F.lit("2024-01-31").alias("partition_key"))


defs = build_definitions([shaped, stray], spark=DatabuildSpark(mode="remote", url={url!r}), warehouse={warehouse!r})
"""


def test_a_call_that_fails_removes_what_spark_wrote_for_it(project: Project, running_sail, s3, bucket) -> None:
    project.define(FAILING.format(url=running_sail.url, warehouse=f"s3://{bucket}/warehouse"))
    project.build("shaped@2024-01-29")
    before = s3.keys(bucket)
    (project.folder / "changed").touch()

    failed = [project.call("build", ref) for ref in ("shaped@2024-01-30", "stray@2024-01-30")]

    assert "it has no column 'id'" in failed[0].out
    assert "2024-01-31" in failed[1].out, "its rows are of a key that was not asked for"
    assert s3.keys(bucket) == before
