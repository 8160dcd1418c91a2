"""A deployment whose warehouse is an object store: wants, builds, reads, misses and losses as on a disk."""

from pathlib import Path
from typing import Any

import dagster as dg
import pandas as pd
import pytest
from pyspark.sql import DataFrame

from databuild_dagster import EMPTY, BuildContext, DatabuildSpark, build_definitions, databuild_asset
from databuild_dagster.bindings.building.deployment import deployment_of_repository
from databuild_dagster.model.states import InstanceState
from databuild_dagster.warehouse import disk, local_copies
from databuild_dagster.warehouse.errors import InvalidWarehouse
from tests.support.object_store import S3Server

daily = dg.DailyPartitionsDefinition(start_date="2013-01-01", end_date="2013-01-04")


@databuild_asset(partitions_def=daily)
def numbers(context: BuildContext) -> pd.DataFrame:
    return pd.DataFrame({"n": range(int(context.partition_key[-2:]))})


@databuild_asset
def total(numbers: DataFrame) -> DataFrame:
    return numbers.selectExpr("sum(n) as n", "count(*) as numbers")


@databuild_asset(partitions_def=daily)
def seen_by_pandas(numbers: pd.DataFrame) -> pd.DataFrame:
    return pd.DataFrame({"numbers": [len(numbers)]}) if len(numbers) > 1 else EMPTY


@pytest.fixture
def warehouse(bucket: str) -> str:
    return f"s3://{bucket}/warehouse"


@pytest.mark.long("Spark reads from a bucket and writes into it")
def test_days_and_their_total_are_built_into_a_bucket_and_read_back(
    deploy: Any, s3: S3Server, bucket: str, warehouse: str, instance: dg.DagsterInstance
) -> None:
    site = deploy(numbers, total, warehouse=warehouse)

    site.build("total")

    assert site.rows("total") == [{"n": sum(sum(range(day)) for day in (1, 2, 3)), "numbers": 1 + 2 + 3}]
    manifests = [key for key in s3.keys(bucket) if key.endswith("/manifest.json") and "/data/instance=" in key]
    assert len(manifests) == 4
    assert all(key.startswith("warehouse/") for key in s3.keys(bucket))
    assert not (Path(instance.root_directory) / "warehouse").exists()
    assert s3.downloads() == []


def test_another_machine_builds_on_what_is_in_the_bucket(deploy: Any, s3: S3Server, warehouse: str) -> None:
    site = deploy(numbers, seen_by_pandas, warehouse=warehouse)
    site.build("numbers@2013-01-01", "numbers@2013-01-03")
    disk.remove_tree(local_copies.cache_dir())

    site.build("seen_by_pandas@2013-01-01", "seen_by_pandas@2013-01-03")

    assert site.rows("seen_by_pandas@2013-01-03") == [{"numbers": 3}]
    assert site.state("seen_by_pandas@2013-01-01") is InstanceState.LIVE
    assert site.rows("seen_by_pandas@2013-01-01") == []
    assert len(s3.downloads()) >= 2


def test_a_day_on_a_disk_is_an_input_of_a_build_into_a_bucket(
    deploy: Any, s3: S3Server, bucket: str, warehouse: str
) -> None:
    """Decision 0039: the warehouse of the definitions is that of later builds."""
    deploy(numbers, seen_by_pandas).build("numbers@2013-01-03")

    site = deploy(numbers, seen_by_pandas, warehouse=warehouse)
    site.build("seen_by_pandas@2013-01-03")

    assert site.rows("seen_by_pandas@2013-01-03") == [{"numbers": 3}]
    assert [key for key in s3.keys(bucket) if "/numbers/" in key] == []


def test_a_missing_bucket_is_named_and_fails_no_ref(deploy: Any, s3: S3Server, bucket: str, warehouse: str) -> None:
    site = deploy(numbers, warehouse=warehouse)
    site.build("numbers@2013-01-02")
    s3.drop_bucket(bucket)

    site.build("numbers@2013-01-03")

    assert site.state("numbers@2013-01-03") is InstanceState.UP_FOR_RETRY
    reason = site.engine.queries.canonical.of(["numbers@2013-01-03"])["numbers@2013-01-03"].reason
    assert f"s3://{bucket}" in str(reason)
    assert site.state("numbers@2013-01-02") is InstanceState.LIVE


def test_a_store_that_was_away_for_a_moment_costs_an_attempt_and_not_the_ref(
    deploy: Any, s3: S3Server, warehouse: str
) -> None:
    site = deploy(numbers, warehouse=warehouse)
    s3.refusals += [(500, "InternalError", ".parquet")]

    site.build("numbers@2013-01-03")

    assert site.state("numbers@2013-01-03") is InstanceState.UP_FOR_RETRY


@pytest.mark.parametrize(
    ("given", "root"),
    [
        ("s3://bucket/prefix/", "s3://bucket/prefix"),
        (Path("/data/warehouse"), "/data/warehouse"),
        ("~/warehouse", str(Path("~/warehouse").expanduser())),
    ],
)
def test_a_warehouse_is_named_without_being_opened(given: Any, root: str) -> None:
    definitions = build_definitions([numbers], spark=DatabuildSpark(), warehouse=given, location="tests")

    deployment = deployment_of_repository(definitions.get_repository_def())

    assert deployment is not None
    assert deployment.warehouse == root


def test_a_url_that_went_through_pathlib_is_refused_when_the_definitions_load() -> None:
    with pytest.raises(InvalidWarehouse, match="as pathlib.Path takes it away"):
        build_definitions([numbers], warehouse=Path("s3://bucket/prefix"))
