"""Frames to instances in an object store, and back: Spark reads copies on the local disk (rule 10.2)."""

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pandas as pd
import pytest

from databuild_dagster.spark.failures import explain_failure, is_transient
from databuild_dagster.spark.frames import S3A_SETTING, read_arrow, read_instances, reads_s3a, s3a_uri, spark_paths
from databuild_dagster.spark.schemas import united_schema
from databuild_dagster.warehouse import disk, local_copies
from databuild_dagster.warehouse.errors import ListedFileLost, StorageUnreachable
from databuild_dagster.warehouse.layout import Warehouse
from databuild_dagster.warehouse.manifest import missing_files, read_manifest
from tests.spark.sorted_rows import rows


@pytest.fixture
def warehouse(bucket):
    # A prefix that Spark would take for a pattern.
    return Warehouse(f"s3://{bucket}/ware [house] x")


def test_what_spark_wrote_is_read_by_spark_and_by_pandas(spark, warehouse, write):
    manifest = write(spark.sql("select 1L as n, 'x' as s union all select 2L, null"))
    disk.remove_tree(local_copies.cache_dir())

    read = read_manifest(warehouse, "flights", manifest.instance_uuid)

    assert read == manifest
    assert missing_files(warehouse, read) == ()
    assert rows(read_instances(spark, warehouse, [read])) == [(1, "x"), (2, None)]
    assert read_arrow(warehouse, [read]).to_pandas().sort_values("n").to_dict("records") == [
        {"n": 1, "s": "x"},
        {"n": 2, "s": None},
    ]


def test_four_threads_write_and_nothing_is_left_staged(spark, warehouse, write):
    with ThreadPoolExecutor(4) as threads:
        manifests = list(threads.map(lambda n: write(spark.range(n), f"flights@{n}"), range(1, 9)))

    assert read_instances(spark, warehouse, manifests).count() == sum(range(1, 9))
    assert list(Path(local_copies.cache_dir(), "staging").iterdir()) == []


def test_a_frame_that_fails_uploads_nothing(spark, s3, bucket, warehouse, write):
    with pytest.raises(Exception, match="bad day"):
        write(spark.sql("select raise_error('bad day') as x"))

    assert s3.keys(bucket) == ["ware [house] x/.create-only"]
    assert list(Path(local_copies.cache_dir(), "staging").iterdir()) == []


def test_a_listed_object_that_is_gone_is_named_before_spark_starts(spark, s3, bucket, warehouse, write):
    manifest = write(spark.range(3), coalesce=1)
    key = f"{warehouse.instance_dir('flights', manifest.instance_uuid)}/{manifest.files[0].uri}"
    s3.client().delete_object(Bucket=bucket, Key=key.removeprefix(f"s3://{bucket}/"))
    disk.remove_tree(local_copies.cache_dir())

    with pytest.raises(ListedFileLost, match=f"{manifest.files[0].uri} is listed in a manifest, but it is not there"):
        read_instances(spark, warehouse, [manifest])


def test_a_store_that_does_not_answer_is_worth_another_attempt(s3, write):
    write(pd.DataFrame({"n": [1]}))
    s3.refusals += [(500, "InternalError", ".parquet")] * 10

    with pytest.raises(StorageUnreachable) as caught:
        write(pd.DataFrame({"n": [2]}))

    assert is_transient(caught.value)
    assert explain_failure(caught.value).startswith(caught.value.message)


@pytest.mark.parametrize(
    ("protocol", "setting", "direct"),
    [
        ("s3", None, False),
        ("s3", "", False),
        ("s3", "org.apache.hadoop.fs.s3a.S3AFileSystem", True),
        ("s3a", "org.apache.hadoop.fs.s3a.S3AFileSystem", True),
        ("gs", "org.apache.hadoop.fs.s3a.S3AFileSystem", False),
    ],
)
def test_a_session_reads_s3_itself_if_it_was_given_hadoops_way_there(protocol, setting, direct):
    assert reads_s3a(protocol, setting) is direct


def test_an_object_of_s3_has_its_name_in_hadoop():
    assert s3a_uri("s3://bucket/a/part-0.parquet") == "s3a://bucket/a/part-0.parquet"


def test_with_hadoops_way_to_s3_nothing_is_fetched(spark, s3, warehouse, write):
    manifest = write(spark.range(3), coalesce=1)
    disk.remove_tree(local_copies.cache_dir())
    spark.conf.set(S3A_SETTING, "org.apache.hadoop.fs.s3a.S3AFileSystem")
    s3.requests.clear()

    try:
        ((path,),) = spark_paths(spark, warehouse, [manifest], united_schema([manifest])).values()
    finally:
        spark.conf.unset(S3A_SETTING)

    folder = warehouse.instance_dir("flights", manifest.instance_uuid).removeprefix("s3://")
    assert path == f"s3a://{folder}/{manifest.files[0].uri}"
    assert s3.requests == []
