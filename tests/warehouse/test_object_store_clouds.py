"""Google's and Azure's stores keep what S3 keeps (rule 10.2): gcsfs and adlfs themselves, on servers of this process."""

import os

import msgspec
import pyarrow as pa
import pytest

from databuild_dagster.warehouse.errors import (
    AccessDenied,
    BucketMissing,
    InvalidWarehouse,
    ListedFileLost,
    ManifestMissing,
    NotCreateOnly,
    StorageUnreachable,
)
from databuild_dagster.warehouse.files import checksum_of_other, read_table
from databuild_dagster.warehouse.layout import Warehouse
from databuild_dagster.warehouse.manifest import (
    ManifestState,
    missing_files,
    read_manifest,
    write_manifest,
)
from databuild_dagster.warehouse.object_store import forget_connections
from databuild_dagster.warehouse.removing import take_away
from databuild_dagster.warehouse.storage import storage_at
from tests.support.cloud_store import Blob, azure_store, environment, google_store, without_pauses
from tests.support.written import OTHER, UUID, clear_cache, manifest_of, numbers, winners_of_a_race, write
from tests.warehouse.store_actions import do_check, do_discard, do_fetch, do_stage, do_write_manifest

BUCKET = "box"
PREFIX = "pre fix/50%"
ACTIONS = [do_stage, do_write_manifest, do_fetch, do_check, do_discard]


@pytest.fixture(scope="module", params=["gs", "abfss"])
def running(request):
    library, server = {"gs": ("gcsfs", google_store), "abfss": ("adlfs", azure_store)}[request.param]
    with server() as store, pytest.MonkeyPatch.context() as patch:
        for name, value in environment(store).items():
            patch.setenv(name, value)
        # gcsfs reads its variables when it is imported.
        pytest.importorskip(library)
        yield store


@pytest.fixture
def store(running, monkeypatch, tmp_path):
    """The server with an empty bucket, and this process's environment that points to it."""
    for name, value in environment(running).items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("DATABUILD_CACHE_DIR", str(tmp_path / "cache"))
    without_pauses(monkeypatch, running)
    running.buckets = {BUCKET: {}}
    running.requests.clear()
    running.refusals.clear()
    running.ignores_conditions = False
    forget_connections()
    yield running
    forget_connections()


@pytest.fixture
def warehouse(store):
    return Warehouse(f"{store.root(BUCKET)}/{PREFIX}")


def test_an_instance_is_read_as_it_was_written(store, warehouse):
    manifest = write(warehouse, numbers(1, 2), numbers(3))
    clear_cache()

    read = read_manifest(warehouse, "raw/flights", UUID)

    assert read == manifest
    assert read_table(warehouse, [read]).to_pydict() == {"n": [1, 2, 3]}
    assert missing_files(warehouse, read) == ()


def test_keys_are_the_names_that_a_disk_would_have(store, warehouse):
    manifest = write(warehouse, numbers(1))

    folder = f"{PREFIX}/raw/flights/data/instance={UUID}"
    assert store.keys(BUCKET) == sorted(
        [f"{PREFIX}/.create-only", f"{folder}/manifest.json", f"{folder}/{manifest.files[0].uri}"]
    )


def test_of_writers_of_one_manifest_one_wins_and_the_others_are_refused(warehouse):
    winners = winners_of_a_race(warehouse, 4)

    assert [read_manifest(warehouse, "raw/flights", UUID).attempt] == winners


def test_a_store_that_overwrites_is_refused_before_anything_is_written(store, warehouse):
    store.ignores_conditions = True

    with pytest.raises(NotCreateOnly):
        warehouse.new_staging_dir(UUID)


def test_a_listing_has_names_sizes_and_checksums(store, warehouse):
    manifest = write(warehouse, numbers(1), numbers(2, 3))
    folder = warehouse.instance_dir("raw/flights", UUID)

    listed = {file.path: file for file in warehouse.all_files(warehouse.root)}

    for file in manifest.files:
        path = f"{folder}/{file.uri}"
        blob = store.buckets[BUCKET][f"{PREFIX}/raw/flights/data/instance={UUID}/{file.uri}"]
        assert listed[path].bytes == file.bytes
        checksum = f"{store.algorithm}:{blob.crc32c if store.algorithm == 'crc32c' else blob.md5}"
        assert listed[path].checksum == checksum_of_other(path) == checksum
        assert abs(listed[path].modified - blob.modified.timestamp()) < 1
    assert [file for file in warehouse.storage.list_files(warehouse.root, deep=False) if UUID in file.path] == []
    data = folder.rpartition("/")[0]
    begins = warehouse.storage.list_files(data, deep=True, prefix=f"instance={UUID[:5]}")
    assert {file.path for file in begins} == {path for path in listed if path.startswith(f"{folder}/")}
    assert warehouse.storage.list_files(data, deep=True, prefix="attempt=") == []
    found = warehouse.storage.find(f"{warehouse.root}/raw/flights/data/instance=*/*.parquet")
    assert found == [(f"{folder}/{file.uri}", file.bytes) for file in manifest.files]


def test_a_footer_is_read_by_ranges_and_not_with_the_whole_file(store, warehouse):
    values = pa.table({"n": pa.array(os.urandom(1 << 20) for _ in range(12))})
    manifest = write(warehouse, values)
    path = f"{warehouse.instance_dir('raw/flights', UUID)}/{manifest.files[0].uri}"

    with storage_at(path).open_binary(path) as opened:
        opened.seek(-8, os.SEEK_END)
        tail = opened.read()

    assert tail[4:] == b"PAR1"
    assert storage_at(path).checksum(path) == manifest.files[0].checksum


def test_files_are_shared_by_a_copy_in_the_store(store, warehouse):
    manifest = write(warehouse, numbers(1))
    there, here = (warehouse.instance_dir("raw/flights", uuid) for uuid in (UUID, OTHER))
    clear_cache()

    warehouse.storage.share(there, here, [manifest.files[0].uri])
    shared = msgspec.structs.replace(manifest, instance_uuid=OTHER)
    write_manifest(warehouse, shared)

    assert read_table(warehouse, [shared]).to_pydict() == {"n": [1]}


def test_lost_and_damaged_files_are_named(store, warehouse):
    manifest = write(warehouse, numbers(1), numbers(2), numbers(3))
    gone, cut, _ = (file.uri for file in manifest.files)
    folder = f"{PREFIX}/raw/flights/data/instance={UUID}"
    del store.buckets[BUCKET][f"{folder}/{gone}"]
    store.buckets[BUCKET][f"{folder}/{cut}"] = Blob(b"PAR1")
    clear_cache()

    assert missing_files(warehouse, manifest) == (gone, cut)
    with pytest.raises(ListedFileLost, match=r"is listed in a manifest, but it (is not there|has 4 bytes)"):
        read_table(warehouse, [manifest])


def test_removals_leave_the_other_instances(store, warehouse):
    kept = write(warehouse, numbers(1))
    for uuid in (OTHER, OTHER.replace("5", "6")):
        write(warehouse, numbers(2), uuid=uuid)

    take_away(warehouse, "raw/flights", OTHER)
    for _ in range(2):
        warehouse.remove_instance("raw/flights", OTHER.replace("5", "6"))

    assert missing_files(warehouse, kept) == ()
    assert [key for key in store.keys(BUCKET) if UUID not in key and "raw/" in key] == [
        f"{PREFIX}/raw/flights/data/instance={OTHER}/manifest.json"
    ]
    assert read_manifest(warehouse, "raw/flights", OTHER).state is ManifestState.REMOVED


# Trouble


@pytest.mark.parametrize("do", ACTIONS)
def test_a_bucket_that_disappears_is_named_by_every_action(store, warehouse, do):
    write(warehouse, numbers(1), uuid=OTHER)
    clear_cache()
    store.buckets.clear()

    with pytest.raises(BucketMissing) as caught:
        do(warehouse)

    kind = "container" if store.algorithm == "md5" else "bucket"
    assert f"because there is no {kind} {store.root(BUCKET)}." in caught.value.message


@pytest.mark.parametrize("do", ACTIONS)
def test_missing_rights_are_named_by_every_action(store, warehouse, do):
    write(warehouse, numbers(1), uuid=OTHER)
    clear_cache()
    refusals = {"crc32c": (403, "forbidden"), "md5": (403, "AuthorizationPermissionMismatch")}
    store.refusals += [(*refusals[store.algorithm], "")] * 9

    with pytest.raises(AccessDenied, match="by the test") as caught:
        do(warehouse)

    variable = {"crc32c": "GOOGLE_APPLICATION_CREDENTIALS", "md5": "AZURE_STORAGE_ACCOUNT_KEY"}[store.algorithm]
    assert variable in caught.value.advice


def test_expired_credentials_are_named(store, warehouse):
    expired = {"crc32c": (401, "Invalid Credentials"), "md5": (401, "InvalidAuthenticationInfo")}
    store.refusals += [(*expired[store.algorithm], "")] * 30

    with pytest.raises(AccessDenied):
        warehouse.new_staging_dir(UUID)


@pytest.mark.parametrize("do", ACTIONS)
def test_a_store_that_does_not_answer_is_named_by_every_action(store, warehouse, monkeypatch, do):
    # Port 9 is closed: nothing is bound to it without rights that no test has.
    for name, value in environment(store).items():
        monkeypatch.setenv(name, value.replace(store.url, "http://127.0.0.1:9"))
    forget_connections()

    with pytest.raises(StorageUnreachable):
        do(warehouse)


def test_a_busy_store_is_tried_again_and_then_named(store, warehouse):
    store.refusals += [(503, "ServerBusy", "manifest.json")] * 2
    write_manifest(warehouse, manifest_of())

    store.refusals += [(503, "ServerBusy", "manifest.json")] * 30
    with pytest.raises(StorageUnreachable):
        read_manifest(warehouse, "raw/flights", UUID)


def test_an_absent_instance_is_no_trouble_of_the_store(warehouse):
    warehouse.remove_instance("raw/flights", UUID)

    assert warehouse.all_files(f"{warehouse.root}/nothing") == []
    with pytest.raises(ManifestMissing):
        read_manifest(warehouse, "raw/flights", UUID)


@pytest.mark.parametrize("running", ["abfss"], indirect=True)  # Only a url of Azure names an account.
def test_credentials_of_another_account_are_refused(store):
    with pytest.raises(InvalidWarehouse, match="is of the account devstoreaccount1"):
        Warehouse("abfss://box@another.dfs.core.windows.net/warehouse").new_staging_dir(UUID)
