"""A warehouse in an object store keeps what a warehouse on a disk promises (rule 10.2)."""

import multiprocessing
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import fsspec.config
import pytest

from databuild_dagster.warehouse import disk, local_copies
from databuild_dagster.warehouse.errors import (
    AccessDenied,
    BucketMissing,
    CredentialsExpired,
    DiskTrouble,
    ListedFileLost,
    ManifestMissing,
    NotCreateOnly,
    StorageTrouble,
    StorageUnreachable,
    StoreFull,
)
from databuild_dagster.warehouse.files import describe_files, publish_files, read_table
from databuild_dagster.warehouse.formats import WRITTEN
from databuild_dagster.warehouse.layout import Warehouse
from databuild_dagster.warehouse.manifest import (
    local_paths,
    missing_files,
    read_manifest,
    read_manifests,
    write_ahead,
    write_manifest,
)
from databuild_dagster.warehouse.object_store import MAX_OVERLAPS, OPEN_REQUESTS, forget_connections, object_store
from databuild_dagster.warehouse.object_store_errors import explained
from tests.support.object_store import own_bucket
from tests.support.written import (
    OTHER,
    UUID,
    clear_cache,
    manifest_of,
    numbers,
    write,
)
from tests.warehouse.store_actions import EVERYTHING


@pytest.fixture
def warehouse(bucket):
    return Warehouse(f"s3://{bucket}/pre fix/[x]")


@pytest.fixture(params=["s3", "seaweedfs"])
def any_warehouse(request):
    """In moto, and in SeaweedFS, whose answers come together."""
    return Warehouse(f"s3://{own_bucket(request.getfixturevalue(request.param), request)}/pre fix/[x]")


def test_what_was_written_is_read_as_from_a_disk(any_warehouse):
    manifest = write(any_warehouse, numbers(1, 2), numbers(3))
    clear_cache()

    read = read_manifest(any_warehouse, "raw/flights", UUID)

    assert read == manifest
    assert read_table(any_warehouse, [read]).to_pydict() == {"n": [1, 2, 3]}
    assert missing_files(any_warehouse, read) == ()


def test_keys_are_the_names_that_a_disk_would_have(s3, bucket, warehouse):
    manifest = write(warehouse, numbers(1))

    folder = f"pre fix/[x]/raw/flights/data/instance={UUID}"
    assert s3.keys(bucket) == sorted(
        ["pre fix/[x]/.create-only", f"{folder}/manifest.json", f"{folder}/{manifest.files[0].uri}"]
    )


def test_the_files_are_there_before_the_manifest(s3, warehouse):
    write(warehouse, numbers(1), numbers(2))

    puts = [path for method, path in s3.requests if method == "PUT"]

    assert [path.rpartition(".")[2] for path in puts[-3:]] == ["parquet", "parquet", "json"]


def test_overlapping_conditional_writes_are_tried_again_but_not_for_ever(s3, warehouse):
    s3.refusals += [(409, "ConditionalRequestConflict", "manifest.json")] * (MAX_OVERLAPS - 1)

    write_manifest(warehouse, manifest_of())

    s3.refusals += [(409, "ConditionalRequestConflict", "manifest.json")] * MAX_OVERLAPS
    with pytest.raises(StorageUnreachable, match="overlapped"):
        write_manifest(warehouse, manifest_of(attempt=2))


def test_a_store_that_overwrites_although_asked_not_to_is_refused_at_once(s3, warehouse):
    s3.ignores_conditions = True

    with pytest.raises(NotCreateOnly):
        warehouse.new_staging_dir(UUID)


# Copies


def test_who_wrote_it_does_not_download_it_and_who_read_it_does_not_again(s3, warehouse):
    manifest = write(warehouse, numbers(1), numbers(2))
    read_table(warehouse, [manifest])
    assert s3.downloads() == []

    clear_cache()
    for _ in range(2):
        assert read_table(warehouse, [manifest]).to_pydict() == {"n": [1, 2]}

    assert len(s3.downloads()) == 2


def test_a_look_at_a_few_rows_fetches_no_more_files_than_hold_them(s3, warehouse):
    manifest = write(warehouse, numbers(1, 2), numbers(3, 4), numbers(5))
    clear_cache()

    table = read_table(warehouse, [manifest], limit=3)

    assert table.to_pydict() == {"n": [1, 2, 3]}
    assert len(s3.downloads()) == 2


def test_a_copy_that_was_cut_short_is_fetched_again(warehouse):
    manifest = write(warehouse, numbers(1))
    (path,) = local_paths(warehouse, [manifest])
    os.truncate(path, 10)

    assert read_table(warehouse, [manifest]).to_pydict() == {"n": [1]}


@pytest.mark.long("processes fetch one file at once")
def test_processes_that_fetch_the_same_at_once_all_read_it_whole(s3, warehouse):
    write(warehouse, *(numbers(*range(1000)) for _ in range(5)))
    clear_cache()
    program = (
        "from databuild_dagster.warehouse.files import read_table;"
        "from databuild_dagster.warehouse.layout import Warehouse;"
        "from databuild_dagster.warehouse.manifest import read_manifest;"
        f"w = Warehouse({warehouse.root!r});"
        f"print(read_table(w, [read_manifest(w, 'raw/flights', {UUID!r})]).num_rows)"
    )

    processes = [subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True) for _ in range(2)]

    assert [process.communicate(timeout=200)[0].strip() for process in processes] == ["5000"] * 2
    copies = list(Path(local_copies.cache_dir(), "instances").rglob("*.parquet"))
    assert len(copies) == 5


def test_a_download_that_breaks_off_leaves_no_copy(s3, warehouse):
    manifest = write(warehouse, numbers(1), numbers(2))
    clear_cache()
    s3.refusals += [(500, "InternalError", ".parquet")]

    with pytest.raises(StorageUnreachable):
        read_table(warehouse, [manifest])

    left = [path for path in Path(local_copies.cache_dir()).rglob("*") if path.is_file() and path.name != ".pruned"]
    assert len(left) <= 1
    assert read_table(warehouse, [manifest]).to_pydict() == {"n": [1, 2]}


def test_a_child_after_a_fork_opens_connections_of_its_own(warehouse):
    manifest = write(warehouse, numbers(1))
    assert read_manifest(warehouse, "raw/flights", UUID) == manifest

    child = multiprocessing.get_context("fork").Process(target=read_manifest, args=(warehouse, "raw/flights", UUID))
    child.start()
    child.join(250)

    assert child.exitcode == 0


# Looking after it


def test_what_is_gone_or_has_another_size_is_found_by_a_deep_check(s3, bucket, warehouse):
    manifest = write(warehouse, numbers(1), numbers(2), numbers(3))
    gone, cut, _ = (file.uri for file in manifest.files)
    folder = warehouse.instance_dir("raw/flights", UUID).removeprefix(f"s3://{bucket}/")
    s3.client().delete_object(Bucket=bucket, Key=f"{folder}/{gone}")
    s3.client().put_object(Bucket=bucket, Key=f"{folder}/{cut}", Body=b"PAR1")
    s3.requests.clear()

    missing = missing_files(warehouse, manifest)

    assert missing == (gone, cut)
    assert len(s3.requests) == 1


@pytest.mark.parametrize(("body", "words"), [(None, "it is not there"), (b"PAR1", "it has 4 bytes instead of")])
def test_a_reader_gets_the_name_of_a_lost_file(s3, bucket, warehouse, body, words):
    manifest = write(warehouse, numbers(1), numbers(2))
    key = f"{warehouse.instance_dir('raw/flights', UUID)}/{manifest.files[1].uri}".removeprefix(f"s3://{bucket}/")
    s3.client().delete_object(Bucket=bucket, Key=key)
    if body is not None:
        s3.client().put_object(Bucket=bucket, Key=key, Body=body)
    clear_cache()

    with pytest.raises(ListedFileLost, match=f"{manifest.files[1].uri} is listed in a manifest, but {words}"):
        read_table(warehouse, [manifest])


def test_a_discard_removes_one_instance_and_its_copies(any_warehouse):
    discarded, kept = write(any_warehouse, numbers(1), numbers(2)), write(any_warehouse, numbers(3), uuid=OTHER)
    any_warehouse.storage.create_only(f"{any_warehouse.instance_dir('raw/flights', UUID)}/a stray", b"")

    any_warehouse.remove_instance("raw/flights", UUID)

    assert [file for file in any_warehouse.all_files(any_warehouse.root) if UUID in file.path] == []
    assert missing_files(any_warehouse, kept) == ()
    with pytest.raises(ManifestMissing):
        read_manifest(any_warehouse, "raw/flights", UUID)
    with pytest.raises(ListedFileLost):
        local_paths(any_warehouse, [discarded])


def test_a_discard_removes_the_manifest_first(s3, warehouse):
    write(warehouse, numbers(1), numbers(2))
    s3.requests.clear()

    warehouse.remove_instance("raw/flights", UUID)

    deleted = [path for method, path in s3.requests if method == "DELETE"]
    assert [path.endswith("/manifest.json") for path in deleted] == [True, False, False]


def test_a_manifest_is_read_and_an_empty_prefix_listed_by_one_request_each(s3, warehouse):
    write(warehouse, numbers(1))
    s3.requests.clear()

    read_manifest(warehouse, "raw/flights", UUID)
    found = warehouse.all_files(f"{warehouse.root}/nothing/here")

    assert found == []
    assert [method for method, _ in s3.requests] == ["GET", "GET"]


def test_manifests_of_many_instances_come_in_their_order(any_warehouse):
    uuids = [f"5e0002a1-0f3d-bd95-db63-{number:012}" for number in range(20)]
    for uuid in uuids:
        write_manifest(any_warehouse, manifest_of(instance_uuid=uuid))

    manifests = read_manifests(any_warehouse, "raw/flights", uuids)

    assert [manifest.instance_uuid for manifest in manifests] == uuids


def test_many_objects_are_written_and_read_in_their_order(s3, warehouse):
    paths = [f"{warehouse.root}/many/{number:02}" for number in range(20)]
    warehouse.storage.create_only(paths[7], b"earlier")
    s3.refusals += [(409, "ConditionalRequestConflict", "many/03")]

    created = warehouse.storage.create_each([(path, path.encode()) for path in paths])
    found = warehouse.storage.read_ranges([(path, 1, 4) for path in paths])
    warehouse.storage.replace_each([(path, b"new") for path in paths[:8]])

    assert [number for number, is_new in enumerate(created) if not is_new] == [7]
    assert found == [b"arl" if number == 7 else b"3:/" for number in range(20)]
    assert [warehouse.storage.read_bytes(path) for path in paths[6:9]] == [b"new", b"new", paths[8].encode()]


def test_the_requests_for_many_objects_are_open_together(s3, warehouse, monkeypatch):
    # None gives up, so that its connection is not passed on.
    monkeypatch.setitem(fsspec.config.conf, "s3", {"config_kwargs": {"read_timeout": 300}})
    forget_connections()
    store, root = object_store("s3"), warehouse.root
    files = [(f"{root}/many/{number}", b"") for number in range(OPEN_REQUESTS)]
    holds = [s3.hold("PUT", "/many/") for _ in files]

    with ThreadPoolExecutor() as threads:
        replaced = threads.submit(store.replace_each, files)
        are_open_together = all(hold.reached.wait(250) for hold in holds)
        for hold in holds:
            hold.released.set()
        replaced.result(250)

    assert are_open_together


def test_the_number_of_connections_can_be_set_in_fsspecs_configuration(s3, bucket, monkeypatch):
    monkeypatch.setitem(fsspec.config.conf, "s3", {"config_kwargs": {"max_pool_connections": 5, "read_timeout": 7}})
    forget_connections()
    store = object_store("s3")

    store.replace(f"s3://{bucket}/one", b"")

    config = store._file_system.s3.meta.config
    assert (config.max_pool_connections, config.read_timeout) == (5, 7)


def test_a_lost_object_among_many_is_named(warehouse):
    there, lost = f"{warehouse.root}/many/there", f"{warehouse.root}/many/lost"
    warehouse.storage.replace(there, b"abc")

    with pytest.raises(FileNotFoundError, match="many/lost"):
        warehouse.storage.read_ranges([(there, 0, 3), (lost, 0, 3)])


def test_a_manifest_that_cannot_be_written_with_the_others_is_left_to_be_explained(s3, warehouse):
    third_uuid = f"{UUID[:-1]}3"
    first, second, third = (manifest_of(instance_uuid=uuid) for uuid in (UUID, OTHER, third_uuid))
    write_manifest(warehouse, second)
    s3.refusals += [(403, "AccessDenied", UUID)]

    assert write_ahead(warehouse, [first, second, third]) == {third_uuid}, "its neighbors do not keep it back"
    assert write_ahead(warehouse, [first, second, third]) == {UUID}


# Trouble


@pytest.mark.parametrize("do", EVERYTHING)
def test_a_bucket_that_disappears_is_named_by_every_action(s3, bucket, warehouse, do):
    write(warehouse, numbers(1), uuid=OTHER)
    clear_cache()
    s3.drop_bucket(bucket)

    with pytest.raises(BucketMissing, match=f"because there is no bucket s3://{bucket}. Create it") as caught:
        do(warehouse)

    assert f"s3://{bucket}/pre fix/[x]/" in caught.value.message


@pytest.mark.parametrize("do", EVERYTHING)
def test_missing_rights_are_named_by_every_action(s3, warehouse, do):
    write(warehouse, numbers(1), uuid=OTHER)
    clear_cache()
    s3.refusals += [(403, "AccessDenied", "")] * 5

    with pytest.raises(AccessDenied, match="refuses it to this user.*AWS_PROFILE"):
        do(warehouse)


@pytest.mark.parametrize(
    ("status", "code", "kind", "why"),
    [
        (
            400,
            "ExpiredToken",
            CredentialsExpired,
            "because the credentials of this process .* have expired. Renew them",
        ),
        (507, "QuotaExceeded", StoreFull, "because the object store is full. Free some space there"),
    ],
)
def test_a_store_that_refuses_a_write_says_why_and_what_to_do(s3, warehouse, status, code, kind, why):
    s3.refusals += [(status, code, "manifest.json")] * 5

    with pytest.raises(kind, match=f"manifest.json could not be written, {why}"):
        write_manifest(warehouse, manifest_of())


@pytest.mark.parametrize("do", EVERYTHING)
def test_a_store_that_does_not_answer_is_named_by_every_question(bucket, warehouse, monkeypatch, do):
    # Port 9 is closed: nothing is bound to it without rights that no test has.
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")
    forget_connections()

    with pytest.raises(StorageUnreachable, match="did not answer as it should.*127.0.0.1:9"):
        do(warehouse)


def test_a_store_whose_connections_time_out_does_not_answer():
    """Packets that a firewall drops are no refusal."""
    from botocore.exceptions import ConnectTimeoutError

    found = explained(ConnectTimeoutError(endpoint_url="http://store"), "s3://lake/warehouse/.databuild.json", "read")

    assert isinstance(found, StorageUnreachable)


def test_without_credentials_the_environment_is_named(warehouse, monkeypatch):
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")
    forget_connections()

    with pytest.raises(AccessDenied, match="the environment has no complete credentials"):
        warehouse.new_staging_dir(UUID)


def test_an_upload_that_fails_leaves_no_manifest(s3, warehouse):
    warehouse.new_staging_dir(UUID)
    s3.refusals += [(403, "AccessDenied", ".parquet")]

    with pytest.raises(AccessDenied):
        write(warehouse, numbers(1), numbers(2))

    with pytest.raises(ManifestMissing):
        read_manifest(warehouse, "raw/flights", UUID)


def test_an_answer_of_no_known_kind_is_still_one_sentence(s3, warehouse):
    s3.refusals += [(400, "QuiteUnheardOf", "manifest.json")]

    with pytest.raises(StorageTrouble, match="could not be written: .*QuiteUnheardOf by the test. Check"):
        write_manifest(warehouse, manifest_of())


def test_a_staged_file_that_is_gone_is_the_disks_trouble_and_not_the_buckets(warehouse):
    staging = warehouse.new_staging_dir(UUID)
    disk.make_dirs(staging)
    WRITTEN.write(numbers(1), os.path.join(staging, "part-0.parquet"))
    files, _ = describe_files(staging)
    disk.remove_tree(staging)

    with pytest.raises(DiskTrouble, match="no such file or directory"):
        publish_files(staging, warehouse.instance_dir("raw/flights", UUID), files)
