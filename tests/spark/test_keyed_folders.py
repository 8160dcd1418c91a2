"""Batches read by the folders of their attempts where these hold the listed files alone (rule 10.9)."""

import uuid

import pytest

from databuild_dagster.model.refs import parse_ref
from databuild_dagster.spark.failures import is_transient
from databuild_dagster.spark.keyed import read_keyed
from databuild_dagster.spark.staging import publish, stage_batch
from databuild_dagster.warehouse.errors import FolderChanged
from databuild_dagster.warehouse.layout import Warehouse, attempt_of
from databuild_dagster.warehouse.manifest import file_paths, kept_manifests
from databuild_dagster.warehouse.whole_folders import check_unchanged
from tests.spark.sorted_rows import rows

KEYS = ("2013-01-01", "2013-01-02-05:00", "a b+c", "%41|x", "last")


@pytest.fixture
def warehouse(bucket):
    return Warehouse(f"s3://{bucket}/ware house")


@pytest.fixture
def manifests(sail, warehouse, reach):
    """The instances of a batch, by key; the number of a key is its place in `KEYS`."""
    frame = sail.createDataFrame(list(enumerate(KEYS)), "n int, partition_key string")
    staged = stage_batch(frame, warehouse.new_attempt_dir("days", "run"), asset="days", keys=KEYS, reach=reach)
    return {
        key: publish(
            staged[key],
            warehouse,
            ref=parse_ref(f"days@{key}"),
            uuid=str(uuid.uuid4()),
            job_run=str(uuid.uuid4()),
            inputs={},
        )
        for key in KEYS
    }


def file_of(s3, bucket, warehouse, manifest):
    (path,) = file_paths(warehouse, manifest)
    return s3.client().get_object(Bucket=bucket, Key=path.removeprefix(f"s3://{bucket}/"))["Body"].read(), path


def put(s3, bucket, path, contents):
    s3.client().put_object(Bucket=bucket, Key=path.removeprefix(f"s3://{bucket}/"), Body=contents)


def test_a_batch_is_read_by_its_folder_with_its_keys(sail, s3, warehouse, manifests):
    seen = []
    s3.requests.clear()

    frame = read_keyed(sail, warehouse, {key: [manifests[key]] for key in KEYS}, None, on_folders=seen.append)

    assert rows(frame) == list(enumerate(KEYS))
    assert [folders.are_all for folders in seen] == [True]
    assert [request for request in s3.requests if request[0] == "HEAD" and request[1].endswith(".parquet")] == []
    check_unchanged(seen)


def test_an_instance_that_serves_several_keys_comes_once_for_each(sail, warehouse, manifests):
    keyed = {f"until {key}": [manifests[before] for before in KEYS[: n + 1]] for n, key in enumerate(KEYS)}
    seen = []

    frame = read_keyed(sail, warehouse, keyed, None, column="until", on_folders=seen.append)

    assert frame.columns == ["n", "until"]
    expected = [(before, f"until {key}") for n, key in enumerate(KEYS) for before in range(n + 1)]
    assert (rows(frame), len(seen)) == (sorted(expected), 1)


def test_some_folders_of_an_attempt_are_read_without_the_others(sail, warehouse, manifests):
    seen = []

    frame = read_keyed(sail, warehouse, {key: [manifests[key]] for key in KEYS[:4]}, None, on_folders=seen.append)

    assert rows(frame) == list(enumerate(KEYS[:4]))
    assert [folders.are_all for folders in seen] == [False]


def test_a_file_that_no_manifest_lists_is_not_read(sail, s3, bucket, warehouse, manifests):
    contents, path = file_of(s3, bucket, warehouse, manifests["last"])
    put(s3, bucket, path.replace(".zst.parquet", "-late.zst.parquet"), contents)
    seen = []

    frame = read_keyed(sail, warehouse, {key: [manifests[key]] for key in KEYS}, None, on_folders=seen.append)

    assert rows(frame) == list(enumerate(KEYS))
    assert set(seen[0].instances) == set(KEYS[:4])


def test_a_file_that_comes_while_a_folder_is_read_is_a_reason_to_try_again(sail, s3, bucket, warehouse, manifests):
    contents, path = file_of(s3, bucket, warehouse, manifests["last"])
    seen = []
    frame = read_keyed(sail, warehouse, {key: [manifests[key]] for key in KEYS}, None, on_folders=seen.append)

    put(s3, bucket, path.replace(".zst.parquet", "-late.zst.parquet"), contents)

    frame.count()
    with pytest.raises(FolderChanged, match=f"came or went in {attempt_of(path)} while") as changed:
        check_unchanged(seen)
    assert is_transient(changed.value)


def test_only_listed_files_are_read_where_no_caller_looks_again(sail, s3, bucket, warehouse, manifests):
    frame = read_keyed(sail, warehouse, {key: [manifests[key]] for key in KEYS}, None)
    contents, path = file_of(s3, bucket, warehouse, manifests["last"])

    put(s3, bucket, path.replace(".zst.parquet", "-late.zst.parquet"), contents)

    assert rows(frame) == list(enumerate(KEYS))


def test_marks_of_another_engine_are_not_given_to_one_that_leaves_none(sail, s3, bucket, warehouse, manifests):
    _, path = file_of(s3, bucket, warehouse, manifests["last"])
    put(s3, bucket, f"{attempt_of(path)}/_SUCCESS", b"")
    seen = []

    frame = read_keyed(sail, warehouse, {key: [manifests[key]] for key in KEYS}, None, on_folders=seen.append)

    assert (rows(frame), seen) == (list(enumerate(KEYS)), [])


def test_a_manifest_that_this_process_has_seen_is_not_fetched_again(s3, warehouse, manifests):
    s3.requests.clear()

    found = kept_manifests(warehouse, "days", [manifest.instance_uuid for manifest in manifests.values()])

    assert (found, s3.requests) == (list(manifests.values()), [])
