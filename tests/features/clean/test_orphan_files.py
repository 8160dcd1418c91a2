"""Storage that no manifest lists is found, and listed files are not (rule 10.8)."""

from __future__ import annotations

import os
import time
from datetime import UTC, datetime
from pathlib import Path

import pytest

from databuild_dagster.data.ownership import warehouses_of
from databuild_dagster.features.clean.orphan_files import YOUNG_SECONDS, unlisted_storage
from databuild_dagster.model.events import ManifestFact
from databuild_dagster.model.refs import asset_of
from databuild_dagster.warehouse.layout import Warehouse
from databuild_dagster.warehouse.manifest import (
    FileEntry,
    Manifest,
    ManifestState,
    TableSchema,
    UriType,
    write_manifest,
)
from tests.support.attempts import Attempts, attempts
from tests.support.fixtures import database, make_world, pytest_generate_tests, world

__all__ = ["attempts", "database", "make_world", "pytest_generate_tests", "world"]

#: What a database holds is proved in the store.
DATABASES = ("sqlite",)

UNKNOWN = "5e0002a1-0f3d-bd95-db63-b1ac4bedec0f"


class Place:
    """A warehouse, and a world that builds into it."""

    def __init__(self, world, root: str) -> None:
        self.world = world
        self.warehouse = Warehouse(root)

    def put(self, path: Path | str) -> None:
        """A file that no manifest lists yet."""
        self.warehouse.storage.create_only(str(path), b"abc")

    def write(self, ref: str, *names: str, **changes) -> Path:
        """The folder of the instance that is being built, with its files and its manifest."""
        uuid = self.world.uuid(ref)
        folder = Path(self.warehouse.instance_dir(asset_of(ref), uuid))
        for name in names:
            self.put(folder / name)
        manifest = Manifest(
            **{
                "dataset": asset_of(ref),
                "ref": ref,
                "instance_uuid": uuid,
                "job_run": self.world.canonical(ref).job_run,
                "attempt": 1,
                "state": ManifestState.COMPLETE,
                "files": tuple(FileEntry(name, 3, 1, "sha256:00") for name in names),
                "created_at": datetime(2013, 1, 1, tzinfo=UTC),
                "schema": TableSchema(()),
                **changes,
            }
        )
        write_manifest(self.warehouse, manifest)
        return folder

    def build(self, ref: str, *names: str) -> Path:
        self.world.job_run(ref)
        folder = self.write(ref, *names)
        uri = str(folder / "manifest.json")
        n = len(names)
        self.world.succeed(ref, manifest=ManifestFact(state="complete", uri=uri, files=n, rows=n, bytes=3 * n))
        return folder

    def found(self, *, later: float = 2 * YOUNG_SECONDS) -> dict[str, str]:
        """The orphan files, so many seconds after now, by path in the warehouse, each with the reason."""
        now = max(time.time(), self.world.clock()) + later
        found = unlisted_storage(self.world.queries, self.warehouse, now)
        return {os.path.relpath(item.path, self.warehouse.root): item.why for item in found}


@pytest.fixture
def place(world, tmp_path):
    return Place(world, str(tmp_path / "warehouse"))


def test_a_file_that_its_instances_manifest_does_not_list_is_found(place):
    folder = place.build("a", "part-0.parquet")
    place.put(folder / "part-1.parquet")
    place.put(folder / "deeper" / ".part-0.parquet.crc")

    found = place.found()

    uuid = place.world.uuid("a")
    assert found == dict.fromkeys(
        (f"a/data/instance={uuid}/part-1.parquet", f"a/data/instance={uuid}/deeper/.part-0.parquet.crc"),
        "its manifest does not list it",
    )


@pytest.mark.parametrize("is_tainted", [False, True])
def test_a_file_that_its_instances_manifest_lists_no_longer_is_kept(place, is_tainted):
    """Rule 6.16: the manifest is damaged, and what it leaves out may be the rows of the instance."""
    folder = place.build("a", "part-0.parquet")
    (folder / "manifest.json").unlink()
    place.write("a")
    if is_tainted:
        place.world.taint("a")

    assert place.found() == {}


def test_a_removed_manifest_lists_nothing_any_more(place):
    place.world.job_run("a")
    place.write("a", "part-0.parquet", state=ManifestState.REMOVED)
    place.world.fail("a")

    assert list(place.found()) == [f"a/data/instance={place.world.uuid('a')}/part-0.parquet"]


@pytest.mark.parametrize("asset", ["a", "not/registered"])
def test_the_folder_of_an_instance_that_is_not_recorded_is_found_once_it_is_old(place, asset):
    place.put(f"{place.warehouse.instance_dir(asset, UNKNOWN)}/part-0.parquet")

    assert place.found(later=0) == {}, "its event may be about to come"
    assert place.found() == {f"{asset}/data/instance={UNKNOWN}": "no such instance is recorded"}


def test_an_instance_in_the_folder_of_another_asset_is_found(place):
    place.build("a", "part-0.parquet")
    place.put(f"{place.warehouse.instance_dir('b', place.world.uuid('a'))}/part-0.parquet")

    assert list(place.found()) == [f"b/data/instance={place.world.uuid('a')}"]


def test_who_builds_is_left_alone_and_who_has_ended_without_a_manifest_is_found(place):
    place.world.job_run("a")
    place.put(f"{place.warehouse.instance_dir('a', place.world.uuid('a'))}/part-0.parquet")

    assert place.found() == {}
    place.world.fail("a")
    assert place.found(later=0) == {}, "the process that failed may be about to clean up"
    assert list(place.found().values()) == ["its job run has ended, and there is no manifest"]


def test_an_unreadable_instance_is_found_unless_it_is_live(place):
    live = place.build("a", "part-0.parquet")
    place.world.job_run("b")
    failed = place.write("b", "part-0.parquet", state=ManifestState.PARTIAL)
    place.world.fail("b")
    for folder in (live, failed):
        (folder / "manifest.json").write_bytes(b"{")

    found = place.found()

    assert list(found) == [f"b/data/instance={place.world.uuid('b')}"]
    assert "its manifest cannot be read" in next(iter(found.values()))


def test_a_file_beside_the_folders_of_instances_is_found_and_one_elsewhere_is_not(place):
    place.build("a", "part-0.parquet")
    place.put(f"{place.warehouse.dataset_dir('a')}/data/notes.txt")
    place.put(f"{place.warehouse.root}/README")

    assert place.found() == {"a/data/notes.txt": "it is in no instance's folder"}


def test_what_lies_outside_and_is_only_listed_is_not_searched(place, tmp_path):
    """Rule 10.6: files of another program, which a manifest of ours names by their whole path."""
    outside = tmp_path / "outside.parquet"
    outside.write_bytes(b"abc")
    place.world.job_run("a")
    entry = FileEntry(str(outside), 3, 1, "sha256:00")
    place.write("a", uri_type=UriType.IDENTIFIER, files=(entry,))
    place.world.fail("a")

    assert place.found() == {}


def test_staging_is_found_unless_its_job_run_is_at_work(place):
    at_work, ended = place.world.job_run("a"), place.world.job_run("b")
    place.world.fail("b")
    for name in (at_work, ended, "probe"):
        place.put(f"{place.warehouse.new_staging_dir(name)}/part-0.parquet")

    assert place.found(later=0) == {}
    assert sorted(place.found().values()) == [
        f"job run {ended}, which began it, has ended",
        "no recorded job run began it",
    ]


def test_every_warehouse_that_the_log_knows_is_looked_at(place, tmp_path):
    place.build("a", "part-0.parquet")
    other = Place(place.world, str(tmp_path / "other"))
    other.build("days@1", "part-0.parquet")

    roots = [item.root for item in warehouses_of(place.world.queries, str(tmp_path / "default"))]

    assert sorted(roots) == sorted(str(tmp_path / name) for name in ("default", "warehouse", "other"))


def test_in_an_object_store_too(world, bucket, s3):
    place = Place(world, f"s3://{bucket}/pre fix")
    world.job_run("a")
    place.write("a", state=ManifestState.PARTIAL)
    world.fail("a")
    folder, unknown = (place.warehouse.instance_dir("a", uuid) for uuid in (world.uuid("a"), UNKNOWN))
    place.put(f"{folder}/part-9.parquet")
    place.put(f"{unknown}/manifest.json")

    found = unlisted_storage(world.queries, place.warehouse, time.time() + 2 * YOUNG_SECONDS)

    assert {item.path: item.why for item in found} == {
        f"{folder}/part-9.parquet": "its manifest does not list it",
        unknown: "no such instance is recorded",
    }


# Attempts of a Spark elsewhere


def in_attempts(attempts: Attempts, *, later: float = 2 * YOUNG_SECONDS) -> list[tuple[str, int, str | None]]:
    """Name, number of files and ref of each attempt that is found, so many seconds after now."""
    attempts.world.clock.set(time.time() + later - attempts.world.clock())
    found = unlisted_storage(attempts.world.queries, attempts.warehouse, attempts.world.clock())
    return [(os.path.basename(item.path), item.files, item.ref) for item in found]


def test_no_file_of_an_attempt_that_a_manifest_lists_is_found(attempts):
    """Live, tainted, superseded, failed with a partial manifest, and published before its event."""
    attempts.live("days@1", "days@2")
    attempts.world.taint("days@1", "days@2")
    attempts.live("days@1")
    folder = attempts.write(attempts.world.job_run("days@2"), "days@2")
    attempts.publish("days@2", folder, ManifestState.PARTIAL)
    attempts.world.fail("days@2")
    folder = attempts.write(attempts.world.job_run("days@3"), "days@3")
    attempts.publish("days@3", folder)
    attempts.world.lose("days@3")

    assert in_attempts(attempts) == []


def test_an_attempt_without_a_manifest_is_found_once_its_launch_has_ended_for_an_hour(attempts):
    attempts.world.clock.set(time.time() - attempts.world.clock())
    job_run = attempts.world.job_run("days@1")
    name = os.path.basename(attempts.write(job_run, "days@1"))
    attempts.world.lose("days@1")

    assert in_attempts(attempts, later=0) == []
    assert in_attempts(attempts) == [(name, 2, "days@1")]
    (found,) = unlisted_storage(attempts.world.queries, attempts.warehouse, attempts.world.clock())
    assert found.why == f"an attempt of job run {job_run}, which has ended, wrote it, and no manifest lists it"


def test_the_attempt_of_a_batch_stays_while_any_job_run_of_its_launch_runs(attempts):
    """It carries the name of the first job run, which may be canceled an hour before the others publish."""
    attempts.world.start("days@1", "days@2")
    attempts.write(attempts.world.job_run("days@1"), "days@1", "days@2")
    attempts.world.cancel("days@1")

    assert in_attempts(attempts) == []

    attempts.world.lose("days@2")
    assert len(in_attempts(attempts)) == 0
    assert len(in_attempts(attempts, later=4 * YOUNG_SECONDS)) == 1


def test_a_late_file_in_an_attempt_in_use_is_found_alone(attempts):
    (manifest,) = attempts.live("days@1")
    attempts.add(attempts.folder_of(manifest), "days@1", "part-9.parquet")

    found = in_attempts(attempts)

    assert [(files, ref) for _, files, ref in found] == [(1, "days@1")]


@pytest.mark.parametrize("trouble", ["damaged", "gone"])
def test_attempts_stay_while_a_live_instance_has_no_readable_manifest(attempts, trouble):
    (manifest,) = attempts.live("days@1")
    path = Path(attempts.warehouse.manifest_path("days", manifest.instance_uuid))
    path.write_text("{") if trouble == "damaged" else path.unlink()

    assert in_attempts(attempts) == []


def test_an_attempt_of_no_recorded_job_run_is_an_orphan_once_all_of_it_is_old(attempts):
    attempts.write(UNKNOWN, "days@1")

    assert in_attempts(attempts, later=0) == []
    assert [(files, ref) for _, files, ref in in_attempts(attempts)] == [(2, None)]
