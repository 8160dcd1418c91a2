"""Builds by a Spark that shares no disk with this process (rule 10.9)."""

import time

import pytest

from databuild_dagster.bindings.building import builds
from tests.support.object_store import own_bucket
from tests.support.project import Project
from tests.support.spark_elsewhere import start_sail

from .sources import of_spark

pytestmark = [
    pytest.mark.long("a Spark without our disk writes and reads a bucket itself"),
    pytest.mark.usefixtures("closed_sessions"),
]

#: Ten on a machine with nothing else to do. Where the first job is slow, a probe has up to 160 s (`reach.SLOWER`).
MAX_SECONDS_OF_A_REFUSAL = 250

DEFINITIONS = of_spark("""
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
""")


def test_a_spark_that_sees_no_disk_of_ours_is_refused_at_once(project: Project, running_sail) -> None:
    warehouse = str(project.folder / "warehouse")
    project.define(DEFINITIONS.format(url=running_sail.url, warehouse=warehouse))

    done = project.call("build", "numbers", "--json")

    assert (done.code, done.json["error"]["type"]) == (2, "WarehouseOutOfReach"), done
    assert warehouse in done.json["error"]["message"]
    assert (project.queries.job_runs.newest(), project.queries.wants.newest()) == ([], [])


#: Sail asks another store for about as long as a probe waits.
SET_UP_WRONGLY = {
    "no credentials": {"AWS_ACCESS_KEY_ID": "", "AWS_SECRET_ACCESS_KEY": ""},
    "another endpoint": {"AWS_ENDPOINT": "http://127.0.0.1:9"},
}


@pytest.mark.parametrize("environment", SET_UP_WRONGLY.values(), ids=SET_UP_WRONGLY)
def test_a_spark_that_is_set_up_wrongly_is_refused_within_ten_seconds(
    project: Project, s3, bucket, tmp_path, environment
) -> None:
    server = start_sail(s3, [tmp_path], tmp_path.parent / "sail.log", **environment)
    project.define(DEFINITIONS.format(url=server.url, warehouse=f"s3://{bucket}/warehouse"))

    began = time.monotonic()
    done = project.call("build", "numbers", "--json")
    seconds = time.monotonic() - began

    server.process.kill()
    server.process.wait()
    assert done.code == 2, (done, project.queries.job_runs.newest())
    assert done.json["error"]["type"] in ("StoreRefusesSpark", "WarehouseOutOfReach")
    assert f"s3://{bucket}/warehouse" in done.json["error"]["message"]
    assert (project.queries.job_runs.newest(), project.queries.wants.newest()) == ([], [])
    assert seconds < MAX_SECONDS_OF_A_REFUSAL


def test_a_build_ends_well_on_a_store_that_fails_every_tenth_request(
    project: Project, running_sail, s3, bucket, monkeypatch
) -> None:
    # As without a setting: the other tests do not wait for further attempts.
    monkeypatch.delenv("AWS_MAX_ATTEMPTS")
    monkeypatch.setattr(builds, "PUBLISHED_AT_ONCE", 2)
    project.define(DEFINITIONS.format(url=running_sail.url, warehouse=f"s3://{bucket}/warehouse"))
    s3.fails_every = 10

    project.build("total@2024-01-01")

    s3.fails_every = 0
    assert project.ask("read", "total@2024-01-01") == [{"total": 6}]
    (file, *_) = project.ask("show", "doubled@2024-01-30")["canonical"]["files"]
    assert file.startswith(f"s3://{bucket}/warehouse/doubled/data/attempt=")
    assert project.ask("log", "check", "--deep") == {"ok": True, "violations": []}
    assert project.ask("log", "check", "--deep", "--contents")["ok"]
    assert not [key for key in s3.keys(bucket) if "/.probe" in key]


def test_four_launches_write_into_a_bucket_of_seaweedfs_together(
    project: Project, sail_by_seaweedfs, seaweedfs, request
) -> None:
    bucket = own_bucket(seaweedfs, request)
    project.define(DEFINITIONS.format(url=sail_by_seaweedfs.url, warehouse=f"s3://{bucket}/warehouse"))

    project.build("total@2024-01-01", "numbers", "--at-once", "4")

    assert project.ask("read", "total@2024-01-01") == [{"total": 6}]
    assert project.ask("log", "check", "--deep", "--contents")["ok"]
    assert not [key for key in seaweedfs.keys(bucket) if "/.probe" in key]


FAILING = of_spark("""
daily = dg.DailyPartitionsDefinition("2024-01-29", end_date="2024-02-01")


@databuild_asset(partitions_def=daily)
def shaped(spark: SparkSession) -> DataFrame:
    changed = (HERE / "changed").exists()
    return spark.range(3).toDF("n") if changed else spark.range(3)


@databuild_asset(partitions_def=daily, batched=True)
def stray(spark: SparkSession) -> DataFrame:
    return spark.range(2).select("id", F.lit("2024-01-31").alias("partition_key"))


defs = build_definitions([shaped, stray], spark=DatabuildSpark(mode="remote", url={url!r}), warehouse={warehouse!r})
""")


def test_a_call_that_fails_removes_what_spark_wrote_for_it(project: Project, running_sail, s3, bucket) -> None:
    project.define(FAILING.format(url=running_sail.url, warehouse=f"s3://{bucket}/warehouse"))
    project.build("shaped@2024-01-29")
    before = s3.keys(bucket)
    (project.folder / "changed").touch()

    failed = [project.call("build", ref) for ref in ("shaped@2024-01-30", "stray@2024-01-30")]

    assert "it has no column 'id'" in failed[0].out
    assert "2024-01-31" in failed[1].out, "its rows are of a key that was not asked for"
    assert s3.keys(bucket) == before


BY_FOLDER = of_spark("""
import fsspec

TRIED = HERE / "tried"
daily = dg.DailyPartitionsDefinition("2024-01-01", end_date="2024-01-09")


@databuild_asset(partitions_def=daily, batched=True)
def orders(context: BuildContext, spark: SparkSession) -> DataFrame:
    return spark.createDataFrame([(1, key) for key in context.partition_keys], "n int, partition_key string")


@databuild_asset(partitions_def=daily, batched=True)
def copied(context: BuildContext, orders: DataFrame) -> DataFrame:
    with TRIED.open("a") as tried:
        tried.write(f"{{len(context.partition_keys)}}\\n")
    store = fsspec.filesystem("s3")
    files = store.glob({warehouse!r} + "/orders/data/attempt=*/partition_key=2024-01-01/*.parquet")
    (first,) = [file for file in files if "-late" not in file]
    late = first.replace("/partition_key=2024-01-01/", {place!r}).replace(".zst.parquet", "-late.zst.parquet")
    if not store.exists(late):
        store.cp_file(first, late)
    return orders


defs = build_definitions([orders, copied], spark=DatabuildSpark(mode="remote", url={url!r}), warehouse={warehouse!r})
""")


@pytest.mark.parametrize("place", ["/partition_key=2024-01-01/", "/"], ids=["of a key", "of all keys"])
def test_a_late_file_in_the_folder_of_an_input_is_in_no_result(project: Project, running_sail, bucket, place) -> None:
    """A file beside the folders of keys ends the job of Sail with an error of its own."""
    project.define(BY_FOLDER.format(url=running_sail.url, warehouse=f"s3://{bucket}/warehouse", place=place))

    project.build("copied@2024-01-01..2024-01-08")

    for day in range(1, 9):
        assert project.ask("read", f"copied@2024-01-0{day}") == [{"n": 1}]
    # All of the keys, and then each half of them, of which one reads the listed file alone.
    assert (project.folder / "tried").read_text().split() == ["8", "4", "4"]
    assert project.is_sound()
