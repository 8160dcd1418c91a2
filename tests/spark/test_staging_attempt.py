"""What a Spark without our disk writes into a bucket, and what it reads there (rule 10.9)."""

import json
import uuid
from dataclasses import replace

import pandas as pd
import pytest

from databuild_dagster.model.refs import parse_ref
from databuild_dagster.spark.errors import AttemptIncomplete, StrayPartitionKeys
from databuild_dagster.spark.frames import read_arrow, read_instances, united
from databuild_dagster.spark.keyed import read_keyed
from databuild_dagster.spark.staging import (
    described_attempt,
    publish,
    read_staged,
    stage_batch,
    stage_instance,
    write_attempt,
)
from databuild_dagster.warehouse.errors import ListedFileLost
from databuild_dagster.warehouse.formats import WRITTEN
from databuild_dagster.warehouse.layout import Warehouse
from databuild_dagster.warehouse.manifest import (
    ManifestState,
    file_paths,
    missing_files,
    missing_files_of,
    read_manifest,
)
from databuild_dagster.warehouse.removing import take_away
from tests.spark.sorted_rows import rows

KEYS = ("2013-01-01", "2013-01-01-05:00", "a b/c=d%é", "nothing")


@pytest.fixture
def warehouse(bucket):
    return Warehouse(f"s3://{bucket}/ware house")


@pytest.fixture
def write(sail, warehouse, reach):
    def write(frame, ref="flights@2013-01-01"):
        named = parse_ref(ref)
        staged = stage_instance(frame, warehouse.new_attempt_dir("flights", "run"), ref=named, reach=reach)
        return published(warehouse, staged, named)

    return write


def published(warehouse, staged, ref):
    return publish(staged, warehouse, ref=ref, uuid=str(uuid.uuid4()), job_run=str(uuid.uuid4()), inputs={})


def test_a_frame_is_written_and_read_where_the_data_is(sail, s3, warehouse, write):
    manifest = write(sail.sql("select 1L as n, 'x' as s union all select 2L, null"))
    s3.requests.clear()

    read = read_manifest(warehouse, "flights", manifest.instance_uuid)

    assert (read, read.rows, missing_files(warehouse, read)) == (manifest, 2, ())
    assert all(file.uri.startswith("../attempt=run-") and file.checksum.startswith("etag:") for file in read.files)
    assert rows(read_instances(sail, warehouse, [read])) == [(1, "x"), (2, None)]
    assert read_arrow(warehouse, [read]).to_pandas().sort_values("n")["n"].tolist() == [1, 2]


def test_a_frame_without_rows_has_its_columns_and_no_files(sail, warehouse, write):
    manifest = write(sail.range(0))

    assert (manifest.state, manifest.files) == (ManifestState.EMPTY, ())
    assert read_instances(sail, warehouse, [manifest]).columns == ["id"]


def test_a_batch_is_split_by_key_and_read_with_its_keys(sail, warehouse, reach):
    frame = sail.createDataFrame([(n, key) for n, key in enumerate(KEYS[:3])], "n int, partition_key string")
    staged = stage_batch(frame, warehouse.new_attempt_dir("flights", "run"), asset="flights", keys=KEYS, reach=reach)

    manifests = {key: published(warehouse, staged[key], parse_ref(f"flights@{key}")) for key in KEYS}

    assert [manifests[key].rows for key in KEYS] == [1, 1, 1, 0]
    expected = [(n, key) for n, key in enumerate(KEYS[:3])]
    assert rows(read_staged(sail, staged, by_key=True)) == expected
    assert rows(read_keyed(sail, warehouse, {key: [manifests[key]] for key in KEYS}, None)) == expected


def test_no_byte_of_data_but_footers_comes_to_this_process(sail, s3, warehouse, write):
    frame = sail.range(100_000).selectExpr("id", "sha2(cast(id as string), 256) as text").repartition(3)
    s3.sent.clear()

    manifest = write(frame)

    assert manifest.rows == 100_000
    assert 0 < s3.sent["Botocore"] + s3.sent["aiobotocore"] < manifest.bytes / 50


def test_files_of_many_keys_are_looked_for_by_one_listing(sail, s3, warehouse, reach):
    keys = [f"{n:02}" for n in range(40)]
    frame = sail.range(40).selectExpr("id", "lpad(cast(id as string), 2, '0') as partition_key").repartition(1)
    staged = stage_batch(frame, warehouse.new_attempt_dir("flights", "run"), asset="flights", keys=keys, reach=reach)
    manifests = [published(warehouse, staged[key], parse_ref(f"flights@{key}")) for key in keys]
    s3.requests.clear()

    lost = missing_files_of(warehouse, manifests)

    assert (lost, len(s3.requests)) == ([()] * 40, 1)


def test_frames_of_hundreds_of_keys_are_one_frame(sail):
    """A plan as deep as the number of keys ended the server's process."""
    assert united([sail.range(1)] * 400).count() == 400


def test_a_listed_file_that_is_gone_is_no_frame_without_rows(sail, s3, bucket, warehouse, write):
    """Sail reads such a file as one without rows."""
    manifest = write(sail.range(3))
    (path, *_) = file_paths(warehouse, manifest)
    s3.client().delete_object(Bucket=bucket, Key=path.removeprefix(f"s3://{bucket}/"))

    with pytest.raises(ListedFileLost, match="is listed in a manifest, but it is not there"):
        read_instances(sail, warehouse, [manifest])


def test_files_of_a_write_that_failed_are_in_no_manifest(sail, s3, bucket, warehouse, write):
    with pytest.raises(Exception, match="bad day"):
        write(sail.sql("select raise_error('bad day') as x"))

    assert [key for key in s3.keys(bucket) if key.endswith("manifest.json")] == []


def test_an_attempt_without_the_mark_of_its_engine_is_incomplete(sail, warehouse, reach):
    with pytest.raises(AttemptIncomplete, match="Spark has left no _SUCCESS there"):
        write_attempt(
            sail.range(3), warehouse.new_attempt_dir("flights", "run"), replace(reach, leaves_mark=True), WRITTEN
        )


@pytest.fixture
def committed(sail, s3, bucket, warehouse, reach):
    """Writes a frame by key, then leaves the files of Databricks' commit protocol beside the data; returns the folder."""

    def committed(*, names=lambda found: found, finished=True):
        frame = sail.createDataFrame([(1, "a"), (2, "b")], "n int, partition_key string")
        folder = warehouse.new_attempt_dir("flights", "run")
        write_attempt(frame, folder, reach, WRITTEN, by_key=True)
        put = s3.client().put_object
        for key in [key for key in s3.keys(bucket) if key.endswith(".parquet")]:
            within, _, name = key.rpartition("/")
            put(Bucket=bucket, Key=f"{within}/_started_7", Body=b"")
            commit = json.dumps({"added": names([name]), "removed": []}).encode()
            if finished:
                put(Bucket=bucket, Key=f"{within}/_committed_7", Body=commit)
            # As a task that did not commit leaves it.
            put(Bucket=bucket, Key=f"{within}/part-00009-tid-7.parquet", Body=b"half a file")
        return folder

    return committed


def test_only_committed_files_are_taken(reach, committed):
    files = described_attempt(committed(), replace(reach, names_committed=True), WRITTEN)

    assert [(within, file.rows) for within, file in files] == [("partition_key=a", 1), ("partition_key=b", 1)]


@pytest.mark.parametrize(
    ("odd", "why"),
    [
        ({"finished": False}, "_committed_7"),
        ({"names": lambda found: [*found, "gone.parquet"]}, "gone.parquet is committed and is not there"),
        ({"names": lambda _: 7}, "_committed_7 cannot be read"),
    ],
)
def test_a_commit_that_does_not_fit_its_files_is_no_attempt(reach, committed, odd, why):
    with pytest.raises(AttemptIncomplete, match=why):
        described_attempt(committed(**odd), replace(reach, names_committed=True), WRITTEN)


def test_rows_without_a_key_are_named_as_on_a_jvm(sail, warehouse, reach):
    frame = sail.createDataFrame([(1, None)], "n int, partition_key string")

    with pytest.raises(StrayPartitionKeys, match="a null key"):
        stage_batch(frame, warehouse.new_attempt_dir("flights", "run"), asset="flights", keys=("a",), reach=reach)


@pytest.mark.parametrize("by_key", [True, False])
def test_a_frame_of_pandas_is_shown_to_a_spark_without_our_disk(sail, tmp_path, by_key):
    frame = pd.DataFrame({"n": [1, None], "at": [pd.Timestamp("2024-01-01")] * 2, "partition_key": ["a", "b"]})
    folder = str(tmp_path / "staged")
    staged = (
        stage_batch(frame, folder, asset="flights", keys=("a", "b", "c"))
        if by_key
        else {None: stage_instance(frame, folder, ref=parse_ref("flights"))}
    )

    shown = read_staged(sail, staged, by_key=by_key, is_elsewhere=True)

    assert sorted((row.partition_key, row.n) for row in shown.collect()) == [("a", 1.0), ("b", None)]


def test_what_is_taken_away_leaves_the_files_of_other_instances(sail, s3, bucket, warehouse, reach):
    frame = sail.createDataFrame([(1, "a"), (2, "b")], "n int, partition_key string")
    folder = warehouse.new_attempt_dir("flights", "run")
    staged = stage_batch(frame, folder, asset="flights", keys=("a", "b"), reach=reach)
    first, second = (published(warehouse, staged[key], parse_ref(f"flights@{key}")) for key in ("a", "b"))

    take_away(warehouse, "flights", first.instance_uuid)

    data = [f"s3://{bucket}/{key}" for key in s3.keys(bucket) if key.endswith(".parquet")]
    assert data == file_paths(warehouse, second)
