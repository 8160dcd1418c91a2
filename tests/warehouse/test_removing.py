"""Files of attempts go with the last manifest that lists them (rule 10.8)."""

import os
from pathlib import Path

import pytest
from msgspec.structs import replace

from databuild_dagster.warehouse.layout import Warehouse
from databuild_dagster.warehouse.manifest import ManifestState, manifest_in, read_manifest, write_manifest
from databuild_dagster.warehouse.removing import discard, files_in_attempts, take_away
from tests.support.attempts import Attempts, attempts
from tests.support.object_store import S3Server
from tests.support.written import manifest_of

__all__ = ["attempts"]

FIRST, SECOND = "00000000-0000-7000-8000-000000000001", "00000000-0000-7000-8000-000000000002"


def test_an_instance_loses_exactly_its_files_of_a_shared_attempt(attempts: Attempts) -> None:
    first, second = attempts.live("days@1", "days@2")

    take_away(attempts.warehouse, "days", first.instance_uuid, [second.instance_uuid])

    (attempt,) = {name.partition("/")[0] for name in attempts.listed(second)}
    assert attempts.files() == sorted([f"{attempt}/_SUCCESS", *attempts.listed(second)])
    assert read_manifest(attempts.warehouse, "days", first.instance_uuid).state is ManifestState.REMOVED


def test_the_marks_of_an_attempt_go_with_its_last_file(attempts: Attempts) -> None:
    manifests = attempts.live("days@1", "days@2")

    for manifest in manifests:
        take_away(attempts.warehouse, "days", manifest.instance_uuid)

    assert attempts.files() == []
    assert not [name for name in os.listdir(f"{attempts.warehouse.root}/days/data") if name.startswith("attempt=")]


@pytest.mark.parametrize("remove", [take_away, discard])
def test_a_file_that_another_instance_lists_goes_with_the_last_one(attempts: Attempts, remove) -> None:
    (first,) = attempts.live("days@1")
    attempts.world.taint("days@1")
    second = attempts.publish("days@1", attempts.folder_of(first))
    both = [first.instance_uuid, second.instance_uuid]

    remove(attempts.warehouse, "days", both[0], both)
    assert set(attempts.listed(second)) < set(attempts.files())

    remove(attempts.warehouse, "days", both[1], both)
    assert attempts.files() == []


def test_files_stay_while_the_manifest_of_another_instance_is_damaged(attempts: Attempts) -> None:
    (first,) = attempts.live("days@1")
    damaged = "00000000-0000-4000-8000-000000000009"
    attempts.warehouse.storage.create_only(attempts.warehouse.manifest_path("days", damaged), b"{")

    take_away(attempts.warehouse, "days", first.instance_uuid, [damaged])

    assert set(attempts.listed(first)) < set(attempts.files())
    assert files_in_attempts(attempts.warehouse, "days", [damaged]) is None


def test_a_removed_manifest_lists_no_file_of_an_attempt(attempts: Attempts) -> None:
    (first,) = attempts.live("days@1")
    assert files_in_attempts(attempts.warehouse, "days", [first.instance_uuid]) != set()

    take_away(attempts.warehouse, "days", first.instance_uuid)

    assert files_in_attempts(attempts.warehouse, "days", [first.instance_uuid]) == set()
    assert manifest_in(attempts.warehouse, f"{attempts.warehouse.root}/days/data/instance={FIRST}") is None


def test_a_removed_manifest_names_no_manifest_that_is_gone(tmp_path: Path) -> None:
    """Rule 10.2"""
    warehouse = Warehouse(str(tmp_path))
    manifest = manifest_of(children=("manifest.part-0000.json",))
    write_manifest(warehouse, manifest)

    take_away(warehouse, manifest.dataset, manifest.instance_uuid)

    assert read_manifest(warehouse, manifest.dataset, manifest.instance_uuid) == replace(
        manifest, state=ManifestState.REMOVED, children=()
    )


def test_the_attempts_of_a_job_run_are_found_by_their_names(s3: S3Server, bucket: str, attempts: Attempts) -> None:
    for warehouse in (attempts.warehouse, Warehouse(f"s3://{bucket}/ware house")):
        attempts.warehouse = warehouse
        first, _ = attempts.write(FIRST, "days@1"), attempts.write(SECOND, "days@2")
        attempts.live("days@3")

        found = [file.path.removeprefix(f"{first}/") for file in warehouse.attempt_files("days", [FIRST])]

        assert sorted(found) == ["_SUCCESS", "partition_key=1/part-0.parquet"]
        assert warehouse.attempt_files("other", [FIRST]) == []
        attempts.world.taint("days@3")
