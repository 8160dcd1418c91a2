"""A warehouse in a bucket of SeaweedFS keeps what a warehouse in moto's keeps, with requests that take effect together (rule 10.2)."""

from __future__ import annotations

import os
import signal

import pytest

from databuild_dagster.warehouse.errors import StorageUnreachable
from databuild_dagster.warehouse.layout import Warehouse
from databuild_dagster.warehouse.manifest import read_manifest, write_manifest
from tests.support.object_store import S3Server, own_bucket, used_by_this_process
from tests.support.seaweedfs import seaweedfs_server
from tests.support.written import OTHER, UUID, manifest_of, numbers, winners_of_a_race, write

N_RACES = 3


@pytest.fixture
def bucket(seaweedfs, request):
    return own_bucket(seaweedfs, request)


@pytest.fixture
def warehouse(bucket):
    return Warehouse(f"s3://{bucket}/pre fix/[x]")


def test_of_two_writers_of_one_manifest_one_wins(bucket):
    # SeaweedFS locks the name of an object for a conditional write. A writer that waits for the lock asks again after a second.
    for number in range(N_RACES):
        warehouse = Warehouse(f"s3://{bucket}/race-{number}")

        winners = winners_of_a_race(warehouse, 2)

        assert [read_manifest(warehouse, "raw/flights", UUID).attempt] == winners


def test_many_objects_are_written_and_read_in_their_order(warehouse):
    paths = [f"{warehouse.root}/many/{number:03}" for number in range(200)]
    warehouse.storage.create_only(paths[7], b"earlier")

    created = warehouse.storage.create_each([(path, path.encode()) for path in paths])
    found = warehouse.storage.read_ranges([(path, 1, 4) for path in paths])

    assert [place for place, was_created in enumerate(created) if not was_created] == [7]
    assert found == [(b"earlier" if place == 7 else path.encode())[1:4] for place, path in enumerate(paths)]


@pytest.mark.long("a server is killed")
def test_a_store_that_is_killed_is_named(tmp_path, monkeypatch):
    with (
        seaweedfs_server(tmp_path) as server,
        used_by_this_process(S3Server(server.url), monkeypatch, tmp_path / "cache"),
    ):
        warehouse = Warehouse(f"s3://{S3Server(server.url).make_bucket('killed')}")
        write(warehouse, numbers(1))
        os.kill(server.pid, signal.SIGKILL)

        with pytest.raises(StorageUnreachable):
            write_manifest(warehouse, manifest_of(instance_uuid=OTHER))
