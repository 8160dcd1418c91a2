"""After an erasure no kept snapshot of a published table lists a file with such a row, and no metadata has a value of it."""

from __future__ import annotations

import json
import time
from pathlib import Path
from threading import Event
from typing import Any

import msgspec
import pytest
from pyiceberg.avro.file import AvroFile
from pyiceberg.io.pyarrow import PyArrowFileIO

from databuild_dagster.features.erase.erased_tables import ErasedTables
from databuild_dagster.features.erase.erasing import SHOWN_TAINTED, UNPUBLISHED, Eraser, Receipt
from databuild_dagster.features.tables.errors import CatalogAway
from databuild_dagster.features.tables.opening import open_table
from databuild_dagster.features.tables.port import Place, Table
from databuild_dagster.model.datasets import TableSpec
from databuild_dagster.warehouse.manifest import file_paths, read_manifest
from tests.support.published import DAYS, DELTA, ICEBERG, PublishedWorld
from tests.support.table_readers import iceberg_table, newest_snapshot, rows_as_of, rows_by_reader

WHERE = "name = 'aaa-ada'"
#: Names that are the least and the greatest of their file, so that statistics have them.
ADA = {"name": ["aaa-ada", "bob"]}
BOB = {"name": ["bob", "cy"]}


def erase(world: PublishedWorld, **options: Any) -> Receipt:
    tables = ErasedTables(world.engine, world.warehouse.root, **options)
    return Eraser(world.engine, world.warehouse.root, tables).erase("sales", WHERE, "ticket 7")


def publish_three(world: PublishedWorld) -> PublishedWorld:
    """Three snapshots, each with a file that has such a row."""
    world.build(DAYS[0], BOB, ADA)
    world.publish()
    world.taint(world.ref(DAYS[0]))
    world.build(DAYS[0], ADA)
    world.publish()
    world.build(DAYS[1], BOB)
    world.publish()
    return world


@pytest.fixture(params=[ICEBERG, DELTA], ids=["iceberg", "delta"])
def world(request: pytest.FixtureRequest, tmp_path: Path) -> PublishedWorld:
    return PublishedWorld(tmp_path, request.param)


@pytest.fixture
def published(world: PublishedWorld) -> PublishedWorld:
    return publish_three(world)


@pytest.fixture
def iceberg(tmp_path: Path) -> PublishedWorld:
    return publish_three(PublishedWorld(tmp_path, ICEBERG))


def files_with(world: PublishedWorld, text: str) -> list[Path]:
    found = [path for path in Path(world.warehouse.root).rglob("*") if path.is_file()]
    return [path for path in found if text.encode() in _readable(path)]


def _readable(path: Path) -> bytes:
    """The bytes of a file; Iceberg compresses its manifests."""
    if path.suffix != ".avro":
        return path.read_bytes()
    with AvroFile(PyArrowFileIO().new_input(str(path))) as records:
        return str(list(records)).encode()


def test_no_kept_snapshot_lists_a_removed_file_and_each_reader_sees_the_other_rows(published: PublishedWorld) -> None:
    world = published
    with_row = {match.uuid for match in Eraser(world.engine, world.warehouse.root).survey("sales", WHERE).matches}
    removed = {
        path for uuid in with_row for path in file_paths(world.warehouse, read_manifest(world.warehouse, "sales", uuid))
    }
    assert removed & world.table().kept(0.0)

    receipt = erase(world)

    assert receipt.is_complete, receipt.not_done
    assert not removed & world.table().kept(time.time())
    assert not any(Path(path).exists() for path in removed)
    rows = rows_as_of(world, world.seq)
    assert len(rows) == 3
    for reader, found in rows_by_reader(world, newest_snapshot(world)).items():
        assert found == rows, reader


def test_no_file_of_the_warehouse_holds_a_value_of_an_erased_row(published: PublishedWorld) -> None:
    """Metadata has the least and the greatest value of each file."""
    assert files_with(published, "aaa-ada")

    erase(published)

    assert files_with(published, "aaa-ada") == []
    assert published.publish().snapshot is None


def test_data_that_a_tag_keeps_is_named(iceberg: PublishedWorld) -> None:
    table = iceberg_table(iceberg)
    table.manage_snapshots().create_tag(table.snapshots()[1].snapshot_id, "audit").commit()

    receipt = erase(iceberg)

    assert not receipt.is_complete
    assert any("a tag or a branch keeps" in one.why and "audit" in one.why for one in receipt.not_done)
    table = iceberg_table(iceberg)
    table.manage_snapshots().remove_tag("audit").commit()
    assert erase(iceberg).is_complete


def test_a_catalog_that_is_away_keeps_the_data_and_is_named(published: PublishedWorld) -> None:
    def away(place: object) -> None:
        raise CatalogAway(asset="sales", table="shop.sales", why="it does not answer")

    receipt = erase(published, open_table=away)

    assert not receipt.is_complete
    assert all("it does not answer" in one.why for one in receipt.not_done)
    assert receipt.removed == []
    assert erase(published).is_complete


def test_an_instance_that_came_and_left_between_two_snapshots_is_erased(world: PublishedWorld) -> None:
    """The table has all files already, and its mark is before the event by which the instance left."""
    world.build(DAYS[1], BOB)
    world.publish()
    world.build(DAYS[0], ADA)
    world.taint(world.ref(DAYS[0]))

    receipt = erase(world)

    assert receipt.is_complete, receipt.not_done
    assert files_with(world, "aaa-ada") == []


def test_data_of_a_table_without_a_snapshot_stays_and_is_named(world: PublishedWorld) -> None:
    """A first publication that runs at this moment may list it."""
    world.build(DAYS[0], {"name": ["aaa-ada"]})

    receipt = erase(world)

    assert files_with(world, "aaa-ada")
    assert not receipt.is_complete
    assert [one.why for one in receipt.not_done] == [UNPUBLISHED]
    world.build(DAYS[1], BOB)
    assert erase(world).is_complete
    assert files_with(world, "aaa-ada") == []


@pytest.mark.parametrize("table", [ICEBERG, DELTA], ids=["iceberg", "delta"])
def test_tainted_data_that_its_table_keeps_is_named_until_a_build_replaces_it(table: TableSpec, tmp_path: Path) -> None:
    world = PublishedWorld(tmp_path, msgspec.structs.replace(table, keep_tainted=True))
    world.build(DAYS[0], ADA)
    world.taint(world.ref(DAYS[0]))
    world.publish()

    receipt = erase(world)

    assert [one.why for one in receipt.not_done] == [SHOWN_TAINTED]
    world.build(DAYS[0], BOB)
    assert erase(world).is_complete
    assert files_with(world, "aaa-ada") == []


def test_versions_of_another_writer_without_statistics_are_left_alone(tmp_path: Path) -> None:
    world = publish_three(PublishedWorld(tmp_path, DELTA))
    log = Path(world.warehouse.dataset_dir(world.asset)) / "_delta_log"
    first = sorted(log.glob("*.json"))[0]
    lines = [json.loads(line) for line in first.read_text().splitlines()]
    for line in lines:
        line.get("add", {}).update({"stats": None} if "add" in line else {})
    first.write_text("".join(f"{json.dumps(line)}\n" for line in lines))

    assert erase(world).is_complete


def test_an_erasure_waits_for_its_table_no_longer_than_the_bound(iceberg: PublishedWorld) -> None:
    ended = Event()

    def silent(place: Place) -> Table:
        ended.wait(250)
        return open_table(place)

    try:
        receipt = erase(iceberg, seconds=0.1, open_table=silent)
    finally:
        ended.set()

    assert receipt.removed == []
    assert all("was not done within" in one.why for one in receipt.not_done)
