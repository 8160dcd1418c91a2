"""The files of live instances are compared with their manifests, and a comparison continues where it was interrupted."""

from __future__ import annotations

import hashlib
import os
from datetime import UTC, datetime
from itertools import islice

import pytest

from databuild_dagster.data.contents import MAX_AGE_SECONDS, Comparison, Counts, Journal, damage_behind
from databuild_dagster.model.datasets import DatasetKind
from databuild_dagster.model.refs import asset_of
from databuild_dagster.warehouse.layout import Warehouse
from databuild_dagster.warehouse.manifest import (
    FileEntry,
    Manifest,
    ManifestState,
    TableSchema,
    UriType,
    file_paths,
    manifest_fact,
    write_manifest,
)
from tests.support.attempts import Attempts, attempts
from tests.support.catalog import dataset
from tests.support.fixtures import database, make_world, pytest_generate_tests
from tests.support.world import World

__all__ = ["attempts", "database", "make_world", "pytest_generate_tests"]

#: A comparison is about files; the databases are proved in the store.
DATABASES = ("sqlite",)

CONTENTS = b"PAR1, some rows, PAR1"
SHA256 = f"sha256:{hashlib.sha256(CONTENTS).hexdigest()}"


class Place:
    """A warehouse with live instances, and a journal beside it."""

    def __init__(self, world: World, root: str, journal: str) -> None:
        self.world = world
        self.warehouse = Warehouse(root)
        self.journal = journal
        self.now = 1_000_000.0

    def build(self, ref: str, *names: str, checksum: str = SHA256) -> list[str]:
        """Make a ref live with files of the same contents; returns their paths."""
        paths = self.list_live(ref, tuple(FileEntry(name, len(CONTENTS), 1, checksum) for name in names))
        for path in paths:
            self.warehouse.storage.create_only(path, CONTENTS)
        return paths

    def list_live(self, ref: str, files: tuple[FileEntry, ...], uri_type: UriType = UriType.PATH) -> list[str]:
        """Make a ref live with a manifest of these files; returns their paths."""
        job_run = self.world.job_run(ref)
        manifest = Manifest(
            dataset=asset_of(ref),
            ref=ref,
            instance_uuid=self.world.uuid(ref),
            job_run=job_run,
            attempt=1,
            state=ManifestState.COMPLETE,
            files=files,
            uri_type=uri_type,
            created_at=datetime(2013, 1, 1, tzinfo=UTC),
            schema=TableSchema(()),
        )
        self.world.succeed(ref, manifest=manifest_fact(manifest, write_manifest(self.warehouse, manifest)))
        return file_paths(self.warehouse, manifest)

    def overwrite(self, path: str, contents: bytes) -> None:
        self.warehouse.storage.replace(path, contents)

    def comparison(self, *, from_start: bool = False) -> Comparison:
        return Comparison(self.world.queries, Journal(self.journal, lambda: self.now, from_start=from_start))

    def found(self) -> list[tuple[str, str]]:
        """Ref and file of each fault of a whole comparison of contents."""
        return [(fault.ref, fault.file) for fault in self.comparison().faults()]


@pytest.fixture(params=["disk", "object store"])
def place(request, make_world, tmp_path):
    on_disk = request.param == "disk"
    root = str(tmp_path / "warehouse") if on_disk else f"s3://{request.getfixturevalue('bucket')}/warehouse"
    return Place(make_world(*(dataset(name) for name in "abc")), root, str(tmp_path / "journal"))


def test_a_file_with_other_bytes_of_the_same_size_is_found_by_its_contents_alone(place) -> None:
    place.build("a", "part-0", "part-1")
    swapped, zeroed = place.build("b", "part-0", "part-1")
    place.overwrite(swapped, CONTENTS.swapcase())
    place.overwrite(zeroed, bytes(len(CONTENTS)))

    by_size = list(Comparison(place.world.queries).faults())
    comparison = place.comparison()
    first, second = comparison.faults()

    assert by_size == []
    assert (first.ref, first.uuid, first.file, second.file) == ("b", place.world.uuid("b"), swapped, zeroed)
    assert first.repair == "`databuild build --rebuild b` builds it again."
    assert SHA256 in first.why
    assert comparison.done == Counts(instances=2, files=4, bytes=4 * len(CONTENTS))


def test_lost_and_cut_files_and_damaged_manifests_are_found_by_either_comparison(place) -> None:
    (lost,) = place.build("a", "part-0")
    (cut,) = place.build("b", "part-0")
    place.build("c", "part-0")
    place.warehouse.storage.remove_files([lost], within=os.path.dirname(lost))
    place.overwrite(cut, CONTENTS[:5])
    manifest = place.warehouse.manifest_path("c", place.world.uuid("c"))
    place.overwrite(manifest, b'{"dataset": "c", \xff')

    by_size = [(fault.ref, fault.file) for fault in Comparison(place.world.queries).faults()]

    assert by_size == [("a", lost), ("b", cut), ("c", manifest)]
    assert place.found() == by_size


def test_a_file_without_a_checksum_that_can_be_computed_is_counted_as_not_compared(place) -> None:
    (path,) = place.build("a", "part-0", checksum="crc64nvme:AAAA")
    place.build("b", "part-0", checksum="")
    place.overwrite(path, CONTENTS.swapcase())

    comparison = place.comparison()

    assert list(comparison.faults()) == []
    assert (comparison.done.files, comparison.done.not_compared) == (2, 2)


def test_an_interrupted_comparison_continues_and_reports_what_it_had_found(place) -> None:
    (damaged,) = place.build("a", "part-0")
    (read,) = place.build("b", "part-0")
    (also_damaged,) = place.build("c", "part-0")
    for path in (damaged, also_damaged):
        place.overwrite(path, CONTENTS.swapcase())
    interrupted = place.comparison().faults()
    assert [fault.ref for fault in islice(interrupted, 2)] == ["a", "c"]
    interrupted.close()
    place.overwrite(read, CONTENTS.swapcase())

    again = place.comparison()
    found = [fault.ref for fault in again.faults()]

    assert found == ["a", "c"], "b was compared within a day"
    assert (again.n_earlier, again.done.instances, again.done.files) == (1, 3, 3)
    assert [ref for ref, _ in place.found()] == ["a", "b", "c"], "a complete comparison leaves nothing to continue"


@pytest.mark.parametrize("way", ["from the start", "a day later", "a damaged journal"])
def test_an_instance_is_compared_again_from_the_start_and_after_a_day(make_world, tmp_path, way) -> None:
    place = Place(make_world(dataset("a")), str(tmp_path / "warehouse"), str(tmp_path / "journal"))
    (path,) = place.build("a", "part-0")
    place.overwrite(path, CONTENTS.swapcase())
    journal = Journal(place.journal, lambda: place.now)
    journal.append(place.warehouse.manifest_path("a", place.world.uuid("a")), Counts(1, 1, 1))
    journal.close()

    if way == "a day later":
        place.now += MAX_AGE_SECONDS + 1
    if way == "a damaged journal":
        with open(place.journal, "r+b") as file:
            file.write(b"\xff\x00")
            file.truncate(40)
    comparison = place.comparison(from_start=way == "from the start")

    assert [fault.file for fault in comparison.faults()] == [path]


def test_an_instance_that_is_replaced_during_the_comparison_is_left_out(place) -> None:
    (path,) = place.build("a", "part-0")
    place.overwrite(path, CONTENTS.swapcase())
    comparison = place.comparison()
    pieces = comparison.faults(lambda: place.world.taint("a"))

    assert list(pieces) == []


def test_files_of_other_programs_are_compared_by_their_bytes(make_world, tmp_path) -> None:
    import pyarrow as pa

    from databuild_dagster.warehouse.files import describe_each
    from databuild_dagster.warehouse.formats import WRITTEN

    place = Place(make_world(dataset("a", kind=DatasetKind.BOUNDARY)), str(tmp_path), str(tmp_path / "journal"))
    path = str(tmp_path / "landed.parquet")
    WRITTEN.write(pa.table({"n": [1, 2, 4]}), path)
    (described,) = describe_each([(path, os.path.getsize(path))])
    place.list_live("a", (described.entry,), UriType.IDENTIFIER)
    same = place.comparison()
    assert (list(same.faults()), same.done.not_compared) == ([], 0)

    # Size and footer stay the same.
    WRITTEN.write(pa.table({"n": [1, 3, 4]}), path)
    (fault,) = place.comparison().faults()

    assert fault.file == path
    assert fault.repair.startswith("Put the file back, or send it again: `databuild lot arrive --landed a`")


def test_damage_is_looked_for_only_after_an_error_of_reading(make_world, tmp_path) -> None:
    """Rule 6.16"""
    place = Place(make_world(dataset("a"), dataset("b")), str(tmp_path / "warehouse"), str(tmp_path / "journal"))
    (zeroed,), (lost,) = place.build("a", "part-0.parquet"), place.build("b", "part-1.parquet")
    place.overwrite(zeroed, bytes(len(CONTENTS)))
    os.unlink(lost)
    read = {ref: place.world.uuid(ref) for ref in ("a", "b")}

    def refs(error: str) -> tuple[str, ...]:
        return damage_behind(place.world.queries, read, error).refs

    assert refs("ValueError: no orders") == ()
    assert refs("cannot read x.parquet") == ("b",), "sizes are compared, contents only of files that the error names"
    assert refs(f"{zeroed} is no Parquet file") == ("a",)
    assert refs("cannot read part-0.parquet") == ("a", "b")
    damage = damage_behind(place.world.queries, read, lost)
    assert damage.sentence == (
        f"its input b is damaged. `databuild build --rebuild b` builds it again. {lost} is gone or has another size."
    )
    place.world.taint("a", "b")
    assert refs(f"{zeroed} and {lost}") == (), "readers do not see them"


def test_an_input_that_cannot_be_reached_is_not_damaged(make_world, tmp_path) -> None:
    place = Place(make_world(dataset("a")), str(tmp_path / "warehouse"), str(tmp_path / "journal"))
    place.build("a", "part-0.parquet")
    uuid = place.world.uuid("a")
    manifest = place.warehouse.manifest_path("a", uuid)
    os.rename(manifest, f"{manifest}.aside")
    os.mkdir(manifest)  # No program reads a folder as if it were a file.

    assert damage_behind(place.world.queries, {"a": uuid}, uuid).refs == ()
    (fault,) = Comparison(place.world.queries).faults()
    assert fault.repair.startswith("Check the disk and the rights of that folder")


def test_a_lost_file_of_an_attempt_is_named_with_the_command_that_repairs_it(attempts: Attempts) -> None:
    (manifest,) = attempts.live("days@1")
    assert list(Comparison(attempts.world.queries).faults()) == []
    (path,) = file_paths(attempts.warehouse, manifest)
    os.unlink(path)

    (fault,) = Comparison(attempts.world.queries).faults()

    assert fault.sentence == (
        f"{path} of instance {manifest.instance_uuid} is gone or has another size. "
        "`databuild build --rebuild days@1` builds it again."
    )
