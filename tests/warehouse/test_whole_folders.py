"""Which folders of an attempt Spark may read in place of listed files, and changes that are seen later (rule 10.9)."""

import os
import uuid

import msgspec
import pytest

from databuild_dagster.warehouse.errors import FolderChanged
from databuild_dagster.warehouse.layout import Warehouse
from databuild_dagster.warehouse.manifest import FileEntry, UriType
from databuild_dagster.warehouse.whole_folders import MAX_FILES_PER_FOLDER, check_unchanged, whole_folders
from tests.support.written import manifest_of

KEYS = ("2013-01-01", "2013-01-02", "a b", "%41")
FOLDERS = ("2013-01-01", "2013-01-02", "a%20b", "%2541")


@pytest.fixture
def warehouse(tmp_path):
    return Warehouse(str(tmp_path / "warehouse"))


@pytest.fixture
def attempt(warehouse):
    """An attempt with a file of each key."""
    attempt = warehouse.new_attempt_dir("days", "run")
    for folder in FOLDERS:
        add(attempt, f"partition_key={folder}/part-0.parquet")
    return attempt


def add(attempt, name, contents=b"rows"):
    path = os.path.join(attempt, name)
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "wb") as file:
        file.write(contents)


def listing(attempt, *names, size_bytes=4):
    """The manifest of an instance that lists these files of an attempt."""
    files = tuple(FileEntry(f"../{os.path.basename(attempt)}/{name}", size_bytes, 1, "etag:0") for name in names)
    return manifest_of(dataset="days", ref="days@x", instance_uuid=str(uuid.uuid4()), files=files)


def of_each_folder(attempt, folders=FOLDERS):
    return [listing(attempt, f"partition_key={folder}/part-0.parquet") for folder in folders]


def test_folders_with_the_listed_files_alone_are_whole(warehouse, attempt):
    manifests = of_each_folder(attempt)

    (found,) = whole_folders(warehouse, manifests)

    uuids = [manifest.instance_uuid for manifest in manifests]
    assert found.instances == dict(zip(KEYS, uuids, strict=True))
    assert (found.attempt, found.are_all, found.has_marks) == (attempt, True, False)


@pytest.mark.parametrize(
    "name",
    ["partition_key=5/part-1.parquet", "partition_key=5/_late", "partition_key=5/.hidden"],
    ids=["data", "mark", "hidden"],
)
def test_a_folder_with_a_file_that_no_manifest_lists_is_not_whole(warehouse, attempt, name):
    """As after the files in which no row can match were left out."""
    add(attempt, "partition_key=5/part-0.parquet")
    add(attempt, name)

    (found,) = whole_folders(warehouse, of_each_folder(attempt, (*FOLDERS, "5")))

    assert set(found.instances) == set(KEYS)
    assert not found.are_all


def test_a_folder_that_lacks_a_listed_file_or_has_it_with_another_size_is_not_whole(warehouse, attempt):
    add(attempt, "partition_key=5/part-0.parquet")
    lost = listing(attempt, "partition_key=5/part-0.parquet", "partition_key=5/part-1.parquet")
    add(attempt, "partition_key=6/part-0.parquet", b"more rows")
    other = listing(attempt, "partition_key=6/part-0.parquet")

    (found,) = whole_folders(warehouse, [*of_each_folder(attempt), lost, other])

    assert set(found.instances) == set(KEYS)


def test_a_folder_that_two_instances_list_is_not_whole(warehouse, attempt):
    add(attempt, "partition_key=5/part-0.parquet")
    adopted = listing(attempt, "partition_key=5/part-0.parquet")

    (found,) = whole_folders(warehouse, [*of_each_folder(attempt, (*FOLDERS, "5")), adopted])

    assert set(found.instances) == set(KEYS)


def test_an_attempt_with_rows_beside_the_folders_of_keys_is_not_read_by_folder(warehouse, attempt):
    add(attempt, "part-0.parquet")

    assert whole_folders(warehouse, of_each_folder(attempt)) == []


@pytest.mark.parametrize("folder", ["hour=1", "_temporary/0", "partition_key=5/hour=1"])
def test_an_attempt_with_folders_of_another_kind_is_not_read_by_folder(warehouse, attempt, folder):
    add(attempt, f"{folder}/part-0.parquet")

    assert whole_folders(warehouse, of_each_folder(attempt)) == []


def test_marks_of_a_finished_write_are_seen(warehouse, attempt):
    add(attempt, "_SUCCESS", b"")

    (found,) = whole_folders(warehouse, of_each_folder(attempt))

    assert found.has_marks


def test_a_few_of_very_many_files_are_not_read_by_folder(warehouse, attempt):
    for number in range(MAX_FILES_PER_FOLDER * len(FOLDERS)):
        add(attempt, f"partition_key=other/{number}.parquet")

    assert whole_folders(warehouse, of_each_folder(attempt)) == []


def test_a_key_that_no_probe_has_tried_is_not_read_by_folder(warehouse, attempt):
    add(attempt, "partition_key=é/part-0.parquet")

    (found,) = whole_folders(warehouse, of_each_folder(attempt, (*FOLDERS, "é")))

    assert set(found.instances) == set(KEYS)


def test_files_outside_of_attempts_are_not_read_by_folder(warehouse, attempt):
    nothing = listing(attempt)
    own = msgspec.structs.replace(nothing, files=(FileEntry("part-0.parquet", 4, 1, "sha256:0"),))
    path = FileEntry(f"{attempt}/partition_key=2013-01-01/part-0.parquet", 4, 1, "sha256:0")
    elsewhere = msgspec.structs.replace(nothing, uri_type=UriType.IDENTIFIER, files=(path,))

    assert whole_folders(warehouse, [nothing, own, elsewhere] * 4) == []


def test_an_attempt_that_stays_as_it_was_is_unchanged(warehouse, attempt):
    add(attempt, "_SUCCESS", b"")
    read = whole_folders(warehouse, of_each_folder(attempt))

    check_unchanged(read)


@pytest.mark.parametrize(
    "name", ["partition_key=2013-01-01/late.parquet", "partition_key=new/late.parquet", "late.parquet", "_late"]
)
def test_a_file_that_comes_after_the_look_is_seen(warehouse, attempt, name):
    read = whole_folders(warehouse, of_each_folder(attempt))

    add(attempt, name)

    with pytest.raises(FolderChanged, match=f"Files came or went in {attempt} while Spark read it"):
        check_unchanged(read)


def test_a_file_that_goes_after_the_look_is_seen(warehouse, attempt):
    read = whole_folders(warehouse, of_each_folder(attempt))

    os.remove(f"{attempt}/partition_key=2013-01-01/part-0.parquet")

    with pytest.raises(FolderChanged):
        check_unchanged(read)


@pytest.mark.parametrize(
    "name",
    ["partition_key=other/late.parquet", "partition_key=a b/late.parquet", "partition_key=a%20b/below/late.parquet"],
)
def test_a_file_in_a_folder_that_is_not_read_is_seen_too(warehouse, attempt, name):
    """An engine may take the folder for one of those that are read."""
    add(attempt, "partition_key=other/part-0.parquet")
    read = whole_folders(warehouse, of_each_folder(attempt))
    assert not read[0].are_all

    add(attempt, name)

    with pytest.raises(FolderChanged):
        check_unchanged(read)


def test_an_attempt_with_two_folders_of_one_key_is_not_read_by_folder(warehouse, attempt):
    add(attempt, "partition_key=a b/part-0.parquet")

    assert whole_folders(warehouse, of_each_folder(attempt)) == []
