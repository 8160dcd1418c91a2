"""A snapshot whose rows are those of the snapshot before says so, and readers of changes read nothing from it (rule 10.10)."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pyarrow as pa
import pytest
from deltalake import DeltaTable
from pyiceberg.table.snapshots import Operation

from databuild_dagster.model.datasets import TableSpec
from tests.support.published import DAYS, DELTA, ICEBERG, PublishedWorld
from tests.support.table_readers import (
    iceberg_table,
    keeps_rows,
    moved_files,
    newest_snapshot,
    rows_as_of,
    rows_by_reader,
    snapshots,
)

ROWS = {"x": [1, 2]}


def build(world: PublishedWorld, day: str, number: int = 1) -> str:
    """An instance of rows that only the number changes; a live instance before it is tainted first."""
    if world.state(world.ref(day)) is not None:
        world.taint(world.ref(day))
    return world.build(day, {"x": [number, number + 1]}, content_hash=f"arrow-1:{number}")


def publish_two(world: PublishedWorld) -> int:
    """Two partitions and their snapshot."""
    build(world, DAYS[0])
    build(world, DAYS[1])
    world.publish()
    return newest_snapshot(world)


def assert_up_to_date(world: PublishedWorld) -> None:
    for reader, rows in rows_by_reader(world, newest_snapshot(world)).items():
        assert rows == rows_as_of(world, world.seq), reader


def test_a_build_of_equal_rows_is_a_snapshot_without_a_change_of_rows(world: PublishedWorld) -> None:
    publish_two(world)
    before = set(world.table().files())
    build(world, DAYS[0])
    build(world, DAYS[1])

    world.publish()

    assert keeps_rows(world, newest_snapshot(world))
    assert len(snapshots(world)) == 2
    assert before.isdisjoint(world.table().files())
    assert_up_to_date(world)


def test_gc_removes_the_files_that_a_build_of_equal_rows_replaced(world: PublishedWorld) -> None:
    publish_two(world)
    first = world.canonical(world.ref(DAYS[0])).uuid
    build(world, DAYS[0])
    world.publish()

    removed = world.gc()

    assert removed == [first]
    assert all(Path(path).exists() for path in world.table().files())
    assert_up_to_date(world)


def test_a_compaction_is_a_snapshot_without_a_change_of_rows(world: PublishedWorld) -> None:
    """Its rows are proved to be equal, so it needs no hash."""
    world.build(DAYS[0], {"x": [1]}, {"x": [2]})
    world.publish()
    world.compact(DAYS[0], ROWS)

    world.publish()

    assert keeps_rows(world, newest_snapshot(world))
    assert_up_to_date(world)


def test_what_two_erasures_left_of_equal_rows_is_an_ordinary_snapshot(world: PublishedWorld) -> None:
    """As many rows are left each time, and their first instance is the same."""
    build(world, DAYS[0])
    second = build(world, DAYS[0])
    world.compact(DAYS[0], {"x": [1]}, erased=True)
    world.publish()
    world.revert(DAYS[0], second)
    world.compact(DAYS[0], {"x": [2]}, erased=True)

    world.publish()

    assert not keeps_rows(world, newest_snapshot(world))
    assert_up_to_date(world)


def test_rows_of_which_the_hash_is_unknown_equal_nothing(world: PublishedWorld) -> None:
    world.build(DAYS[0], ROWS)
    world.publish()
    world.taint(world.ref(DAYS[0]))
    world.build(DAYS[0], ROWS)

    world.publish()

    assert not keeps_rows(world, newest_snapshot(world))


def test_rows_that_had_left_the_table_come_back_by_an_ordinary_snapshot(world: PublishedWorld) -> None:
    publish_two(world)
    world.taint(world.ref(DAYS[0]))
    world.publish()
    world.build(DAYS[0], ROWS, content_hash="arrow-1:1")

    world.publish()

    assert not any(keeps_rows(world, snapshot) for snapshot in snapshots(world))
    assert_up_to_date(world)


@pytest.mark.parametrize("table", [ICEBERG, DELTA], ids=["iceberg", "delta"])
def test_tainted_rows_that_a_table_shows_stay_by_a_build_of_equal_rows(table: TableSpec, tmp_path: Path) -> None:
    world = PublishedWorld(tmp_path, msgspec.structs.replace(table, keep_tainted=True))
    publish_two(world)
    world.taint(world.ref(DAYS[0]))
    world.publish()
    world.build(DAYS[0], ROWS, content_hash="arrow-1:1")

    world.publish()

    assert keeps_rows(world, newest_snapshot(world))


def test_rows_that_the_table_lacked_because_their_key_was_gone_are_new(world: PublishedWorld) -> None:
    """No event says when the key of a dynamic partition goes and comes, so the log alone would take them for the same."""
    publish_two(world)
    every_key = world.catalog.keys_of
    world.catalog.keys_of = lambda dataset: [DAYS[1]]
    world.taint(world.ref(DAYS[0]))
    world.build(DAYS[0], ROWS, content_hash="arrow-1:1")
    world.publish()
    world.catalog.keys_of = every_key
    build(world, DAYS[0])

    world.publish()

    assert not any(keeps_rows(world, snapshot) for snapshot in snapshots(world))
    assert_up_to_date(world)


def test_an_instance_that_comes_back_moves_no_file_and_needs_no_snapshot(world: PublishedWorld) -> None:
    publish_two(world)
    first = world.canonical(world.ref(DAYS[0])).uuid
    build(world, DAYS[0])
    world.revert(DAYS[0], first)

    assert world.publish().snapshot is None


def test_an_incremental_scan_of_iceberg_reads_nothing_of_equal_rows(iceberg: PublishedWorld) -> None:
    since = publish_two(iceberg)
    build(iceberg, DAYS[0])
    iceberg.publish()
    iceberg.compact(DAYS[0], ROWS)
    iceberg.publish()
    build(iceberg, DAYS[2], number=7)
    iceberg.publish()

    table = iceberg_table(iceberg)
    scan = table.incremental_append_scan(from_snapshot_id_exclusive=since)

    assert sorted(scan.to_arrow()["x"].to_pylist()) == [7, 8]
    operations = [found.summary.operation for found in table.snapshots()]
    assert operations == [Operation.APPEND, Operation.REPLACE, Operation.REPLACE, Operation.APPEND]
    totals = table.current_snapshot().summary.additional_properties
    assert (totals["total-records"], totals["total-data-files"]) == ("6", "3")


def test_the_change_feed_of_delta_has_the_partitions_of_other_rows_alone(delta: PublishedWorld) -> None:
    publish_two(delta)
    root = delta.warehouse.dataset_dir("sales")
    DeltaTable(root).alter.set_table_properties({"delta.enableChangeDataFeed": "true"})
    delta.publish(repair=True)
    since = newest_snapshot(delta)
    build(delta, DAYS[0])
    delta.publish()
    build(delta, DAYS[0])
    build(delta, DAYS[1], number=5)
    delta.publish()

    feed = pa.table(DeltaTable(root).load_cdf(starting_version=since).read_all())

    changes = zip(feed["_change_type"].to_pylist(), feed["x"].to_pylist(), strict=True)
    assert sorted(changes) == [("delete", 1), ("delete", 2), ("insert", 5), ("insert", 6)]
    marked = {(moved["partitionValues"]["day"], moved["dataChange"]) for moved in moved_files(delta, since + 2)}
    assert marked == {(DAYS[0], False), (DAYS[1], True)}
    assert_up_to_date(delta)


def test_an_iceberg_snapshot_with_other_rows_in_one_partition_is_an_overwrite(iceberg: PublishedWorld) -> None:
    publish_two(iceberg)
    build(iceberg, DAYS[0])
    build(iceberg, DAYS[1], number=5)

    iceberg.publish()

    assert iceberg_table(iceberg).current_snapshot().summary.operation is Operation.OVERWRITE
    assert_up_to_date(iceberg)
