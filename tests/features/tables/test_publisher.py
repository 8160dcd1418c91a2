"""The publisher brings a table up to the log in one snapshot, exactly once, and refuses tables that are not its own."""

from __future__ import annotations

import json
import shutil
from datetime import date
from pathlib import Path
from threading import Barrier, Thread

import msgspec
import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from deltalake.exceptions import DeltaError

from databuild_dagster.data.ownership import take_over
from databuild_dagster.engine.follower import ProcessCursors
from databuild_dagster.features.clean.cleaning import Cleaner
from databuild_dagster.features.tables.errors import (
    CatalogAway,
    ColumnRefused,
    ColumnsDiffer,
    ForeignSnapshot,
    NameNotOfTables,
    NotPublished,
    OutsideOfTable,
    PartitionColumnsDiffer,
    PublishConflict,
    StoreIsACopy,
    TableAhead,
    TableElsewhere,
    TableNotOurs,
    TableOfAnother,
    TableOfAnotherDataset,
    TableOfAnotherHistory,
)
from databuild_dagster.features.tables.keeping import PublishedFiles
from databuild_dagster.features.tables.live_files import Touches, contents_of_dataset
from databuild_dagster.features.tables.opening import place_of
from databuild_dagster.features.tables.port import Contents, Mark
from databuild_dagster.features.tables.publisher import follow, publish
from databuild_dagster.model.datasets import PartitionColumn, PartitionType, TableSpec
from databuild_dagster.warehouse.errors import DiskTrouble
from tests.features.tables.catalogs import configure
from tests.support.faulty_disk import failing_call
from tests.support.published import DAYS, DELTA, ICEBERG, PublishedWorld
from tests.support.table_readers import iceberg_table, newest_snapshot, rows_as_of, rows_by_reader, snapshots

BOTH = pytest.mark.parametrize("table", [ICEBERG, DELTA], ids=["iceberg", "delta"])


def publish_first(world: PublishedWorld) -> str:
    """One instance, and the first snapshot; the uuid."""
    uuid = world.build(DAYS[0], {"x": [1]})
    world.publish()
    return uuid


def rebuild(world: PublishedWorld) -> str:
    """Another instance replaces the first one; its uuid."""
    world.taint(world.ref(DAYS[0]))
    return world.build(DAYS[0], {"x": [2]})


def assert_up_to_date(world: PublishedWorld) -> None:
    for reader, rows in rows_by_reader(world, newest_snapshot(world)).items():
        assert rows == rows_as_of(world, world.seq), reader


def test_a_tainted_instance_stays_only_where_the_author_keeps_it(world: PublishedWorld, tmp_path: Path) -> None:
    keeping = PublishedWorld(tmp_path / "keeping", msgspec.structs.replace(world.spec.table, keep_tainted=True))

    for one in (keeping, world):
        one.build(DAYS[1], {"x": [2]})
        publish_first(one)
        one.taint(one.ref(DAYS[0]))
        one.publish()

    assert len(keeping.table().files()) == 2
    assert len(world.table().files()) == 1


def test_a_changed_option_is_seen_in_partitions_that_no_event_touches(world: PublishedWorld) -> None:
    world.build(DAYS[0], {"x": [1]})
    world.taint(world.ref(DAYS[0]))
    world.build(DAYS[1], {"x": [2]})
    keeping = msgspec.structs.replace(world.spec, table=msgspec.structs.replace(world.spec.table, keep_tainted=True))
    cursors = ProcessCursors(world.engine)

    n_files = []
    for spec in (world.spec, keeping, world.spec):
        follow(world.engine, spec, world.warehouse.root, cursors, head=world.seq, touches=Touches(world.queries))
        n_files.append(len(world.table().files()))

    assert n_files == [1, 2, 1]


def test_a_snapshot_names_the_instances_and_job_runs_behind_it(world: PublishedWorld) -> None:
    uuid = world.build(DAYS[0], {"x": [1]})
    job_run = world.canonical(world.ref(DAYS[0])).job_run

    world.publish()

    if world.spec.table is DELTA:
        facts = DeltaTable(world.warehouse.dataset_dir("sales")).history()[0]["databuild"]
        assert (facts["instances"], facts["jobRuns"]) == ([uuid], [job_run])
    else:
        facts = iceberg_table(world).current_snapshot().summary.additional_properties
        assert json.loads(facts["databuild.instances"]) == [uuid]
        assert json.loads(facts["databuild.job-runs"]) == [job_run]


def test_a_new_column_appears_and_older_files_have_nulls(world: PublishedWorld) -> None:
    publish_first(world)
    world.build(DAYS[1], {"x": [2], "y": ["new"]})

    world.publish()

    assert_up_to_date(world)


def test_a_widened_column_is_widened_in_iceberg_and_refused_in_delta(
    iceberg: PublishedWorld, delta: PublishedWorld
) -> None:
    narrow, wide = pa.table({"x": pa.array([1], pa.int32())}), pa.table({"x": pa.array([2], pa.int64())})
    for world in (iceberg, delta):
        world.build(DAYS[0], narrow)
        world.publish()
        world.build(DAYS[1], wide)

    iceberg.publish()
    with pytest.raises(ColumnsDiffer, match="'x' is int32 there, and int64 in the file"):
        delta.publish()

    assert_up_to_date(iceberg)


@BOTH
def test_a_dataset_without_partitions_is_a_table_without_a_partition_column(table: TableSpec, tmp_path: Path) -> None:
    world = PublishedWorld(tmp_path, msgspec.structs.replace(table, columns=()), keys=())
    world.build(None, {"x": [1]})
    world.publish()
    world.taint("sales")
    world.build(None, {"x": [2]})

    world.publish()

    assert set(world.table().files().values()) == {()}
    found = rows_by_reader(world, newest_snapshot(world))
    assert set(map(tuple, found.values())) == {((("x", "2"),),)}


@BOTH
def test_a_partition_of_two_dimensions_has_two_columns(table: TableSpec, tmp_path: Path) -> None:
    columns = (PartitionColumn("day", PartitionType.DATE, "%Y-%m-%d"), PartitionColumn("shop"))
    keys = ["2024-01-01|eu/west", "2024-01-01|us", "2024-01-02|eu/west"]
    world = PublishedWorld(tmp_path, msgspec.structs.replace(table, columns=columns), keys=keys)
    for number, key in enumerate(keys):
        world.build(key, {"x": [number]})
    world.publish()
    world.taint(world.ref(keys[1]))

    world.publish()

    days = [(date(2024, 1, 1), "eu/west"), (date(2024, 1, 2), "eu/west")]
    assert sorted(world.table().files().values()) == days
    for rows in rows_by_reader(world, newest_snapshot(world)).values():
        assert [dict(row)["shop"] for row in rows] == ["'eu/west'", "'eu/west'"]


def test_of_two_publishers_at_once_one_wins_and_the_other_looks_again(world: PublishedWorld) -> None:
    publish_first(world)
    rebuild(world)
    engines, start, errors = [world.engine, world.process()], Barrier(2), list[Exception]()

    def run(number: int) -> None:
        start.wait(250)
        try:
            publish(engines[number], world.spec, world.warehouse.root)
        except Exception as error:
            errors.append(error)

    threads = [Thread(target=run, args=(number,)) for number in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(250)

    assert errors == []
    assert len(snapshots(world)) == 2
    assert_up_to_date(world)


def test_a_table_that_was_created_or_dropped_meanwhile_is_a_conflict(world: PublishedWorld) -> None:
    world.build(DAYS[0], {"x": [1]})
    mark = Mark(world.store.identity().id, world.seq)
    contents = contents_of_dataset(
        world.queries, world.spec, place_of(world.spec, world.warehouse.root), world.seq, world.catalog.left_out
    )

    with pytest.raises(PublishConflict):
        world.table().replace(contents._replace(is_whole=False), mark, before=mark)
    world.publish()
    with pytest.raises(PublishConflict):
        world.table().replace(Contents({}, is_whole=True), mark, before=None)

    assert_up_to_date(world)


def test_a_dry_run_commits_nothing(world: PublishedWorld) -> None:
    world.build(DAYS[0], {"x": [1]})

    planned = world.publish(dry_run=True)

    assert planned.snapshot is not None
    assert (planned.snapshot.id, planned.snapshot.files_added) == (None, 1)
    assert world.table().mark() is None


def test_the_table_of_another_store_is_refused_until_it_is_taken_over(world: PublishedWorld, tmp_path: Path) -> None:
    publish_first(world)
    second = PublishedWorld(tmp_path / "second", world.spec.table)
    second.build(DAYS[1], {"x": [2]})
    shutil.copytree(world.warehouse.root, second.warehouse.root, dirs_exist_ok=True)
    if world.spec.table is ICEBERG:
        # The copy of the catalog still leads to the first table.
        second.warehouse, own = world.warehouse, second.warehouse
        assert own != second.warehouse

    with pytest.raises(TableOfAnother, match="belongs to another build state"):
        second.publish()
    second.publish(take_over=True)

    assert second.table().mark().store_id == second.store.identity().id
    assert set(second.table().files().values()) == {(date(2024, 1, 2),)}


def test_a_snapshot_of_another_writer_is_refused_or_replaced(world: PublishedWorld) -> None:
    publish_first(world)
    foreign = pa.table({"x": [7], "day": [date(2024, 1, 4)]})
    if world.spec.table is DELTA:
        write_deltalake(world.warehouse.dataset_dir("sales"), foreign, mode="append")
    else:
        iceberg_table(world).append(foreign)

    with pytest.raises(ForeignSnapshot, match="--repair"):
        world.publish()
    world.publish(repair=True)

    assert world.table().mark()[:2] == (world.store.identity().id, world.seq)
    assert_up_to_date(world)


def test_a_table_that_was_there_before_is_refused(delta: PublishedWorld) -> None:
    delta.build(DAYS[0], {"x": [1]})
    write_deltalake(delta.warehouse.dataset_dir("sales"), pa.table({"x": [1]}))

    with pytest.raises(TableNotOurs, match="databuild has not made it"):
        delta.publish()


def test_a_table_of_other_partition_columns_is_refused(world: PublishedWorld) -> None:
    publish_first(world)
    other = msgspec.structs.replace(world.spec.table, columns=(PartitionColumn("day"),))
    world.specs = (msgspec.structs.replace(world.spec, table=other),)

    with pytest.raises(PartitionColumnsDiffer, match=r"partitioned by day \(date"):
        world.publish()


@pytest.mark.parametrize(
    ("table", "column", "why"),
    [
        (ICEBERG, "day", "the column 'day': it is the name of the partition column"),
        (DELTA, "day", "the column 'day': it is the name of the partition column"),
        (ICEBERG, "Day", "the column 'Day': it is the name of the partition column 'day', upper and lower case"),
        (DELTA, "DAY", "the column 'DAY': it is the name of the partition column 'day', upper and lower case"),
        (ICEBERG, "_file", "Iceberg has a column of its own"),
        (DELTA, "a b", "Delta allows none of"),
        (DELTA, "day\0", "Delta allows none of"),
    ],
)
def test_a_column_name_that_the_table_cannot_have_is_refused(
    table: TableSpec, column: str, why: str, tmp_path: Path
) -> None:
    world = PublishedWorld(tmp_path, table)
    world.build(DAYS[0], {column: [1]})

    with pytest.raises(ColumnRefused, match=why):
        world.publish()

    assert world.table().mark() is None


@pytest.mark.parametrize(
    ("table", "kind", "why"),
    [
        (
            ICEBERG,
            pa.timestamp("us", "Europe/Berlin"),
            r"Iceberg has no type for timestamp\[us, tz=Europe/Berlin\]\. Rename",
        ),
        (ICEBERG, pa.null(), "it has no value in a file of another program, and so no type"),
        (ICEBERG, pa.uint64(), r"Iceberg has no type for uint64\. Rename"),
        (ICEBERG, pa.list_(pa.uint64()), r"Iceberg has no type for list<"),
        (ICEBERG, pa.map_(pa.string(), pa.struct([("n", pa.uint64())])), r"Iceberg has no type for map<"),
        (
            DELTA,
            pa.timestamp("us", "Europe/Berlin"),
            r"Delta has no type for timestamp\[us, tz=Europe/Berlin\]\. Rename",
        ),
    ],
)
def test_a_column_type_that_the_table_cannot_have_is_refused_by_name(
    table: TableSpec, kind: pa.DataType, why: str, tmp_path: Path
) -> None:
    world = PublishedWorld(tmp_path, table)
    world.build(DAYS[0], {"n": [1], "took": pa.array([None], kind)})

    with pytest.raises(ColumnRefused, match=f"cannot have the column 'took': {why}"):
        world.publish()

    assert world.table().mark() is None


def test_adopted_files_are_in_an_iceberg_table_and_outside_of_a_delta_table(
    iceberg: PublishedWorld, delta: PublishedWorld, tmp_path: Path
) -> None:
    for world in (iceberg, delta):
        world.adopt(DAYS[0], tmp_path / "elsewhere" / "a b%20.parquet", {"x": [1]})

    iceberg.publish()
    with pytest.raises(OutsideOfTable, match="cannot list .*elsewhere"):
        delta.publish()

    assert_up_to_date(iceberg)


def test_a_name_that_readers_of_iceberg_do_not_open_is_refused(iceberg: PublishedWorld, tmp_path: Path) -> None:
    path = tmp_path / "elsewhere" / "a#b.parquet"
    iceberg.adopt(DAYS[0], path, {"x": [1]})

    with pytest.raises(NameNotOfTables) as refused:
        iceberg.publish()

    assert (refused.value.facts["path"], iceberg.table().mark()) == (str(path), None)


def restored(home: Path, table: TableSpec, backup: Path) -> PublishedWorld:
    """The home after a backup was written into the file of its log: another file would be another place."""
    for name in home.glob("databuild.db-*"):
        name.unlink()
    (home / "databuild.db").write_bytes(backup.read_bytes())
    return PublishedWorld(home, table, first_id=2_000)


def published_after_a_backup(home: Path, table: TableSpec) -> Path:
    """A table that holds events which the backup does not have."""
    world = PublishedWorld(home, table)
    world.build(DAYS[0], {"x": [1]})
    world.close()
    backup = home.with_name("databuild.db")
    shutil.copy(home / "databuild.db", backup)
    later = PublishedWorld(home, table, first_id=1_000)
    later.build(DAYS[1], {"x": [2]})
    later.publish()
    later.close()
    return backup


@BOTH
def test_a_table_is_ahead_of_a_log_that_was_restored(table: TableSpec, tmp_path: Path) -> None:
    world = restored(tmp_path / "home", table, published_after_a_backup(tmp_path / "home", table))

    with pytest.raises(TableAhead, match="--repair"):
        world.publish()
    world.publish(repair=True)

    assert_up_to_date(world)


@BOTH
def test_a_table_of_a_lost_history_is_refused_after_the_log_has_grown_again(table: TableSpec, tmp_path: Path) -> None:
    world = restored(tmp_path / "home", table, published_after_a_backup(tmp_path / "home", table))
    lost = world.table().mark().seq
    while world.seq <= lost:
        world.build(DAYS[2], {"x": [3]})
        world.taint(world.ref(DAYS[2]))

    with pytest.raises(TableOfAnotherHistory, match=f"event {lost} is not the one it was"):
        world.publish()
    world.publish(repair=True)

    assert_up_to_date(world)
    assert world.publish().snapshot is None


@pytest.mark.parametrize(
    ("uri", "why"),
    [
        ("http://user:secret@127.0.0.1:1/of-the-catalog-alone", "ConnectionError: "),
        ("postgresql+psycopg://user:secret@127.0.0.1:1/of-the-catalog-alone", "OperationalError: "),
    ],
    ids=["rest", "postgres"],
)
def test_a_catalog_that_is_away_is_one_sentence_without_its_password(
    uri: str, why: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    configure(monkeypatch, "away", URI=uri, TOKEN="of-the-catalog-alone")
    world = PublishedWorld(tmp_path, msgspec.structs.replace(ICEBERG, catalog="away"))
    world.build(DAYS[0], {"x": [1]})

    with pytest.raises(CatalogAway, match=f"The table shop.sales of sales cannot be reached: {why}") as away:
        world.publish()

    assert "secret" not in str(away.value)
    assert "of-the-catalog-alone" not in str(away.value)


def test_what_happened_while_a_table_could_not_be_published_is_one_later_snapshot(world: PublishedWorld) -> None:
    publish_first(world)
    for number in range(3):
        world.taint(world.ref(DAYS[0]))
        world.build(DAYS[0], {"x": [number]})
        with pytest.raises(DiskTrouble, match="the disk fails here"), failing_call(world.warehouse.root, 1):
            world.publish()

    world.publish()

    assert len(snapshots(world)) == 2
    assert_up_to_date(world)


def test_a_dataset_without_a_table_is_not_published(iceberg: PublishedWorld) -> None:
    iceberg.specs = (msgspec.structs.replace(iceberg.spec, table=msgspec.UNSET),)

    with pytest.raises(NotPublished, match="sales is published as no table"):
        iceberg.publish()


def test_a_copy_of_a_store_publishes_nothing(tmp_path: Path) -> None:
    world = PublishedWorld(tmp_path / "home", ICEBERG)
    world.build(DAYS[0], {"x": [1]})
    world.close()
    shutil.copytree(tmp_path / "home", tmp_path / "copy")
    copy = PublishedWorld(tmp_path / "copy", ICEBERG)

    with pytest.raises(StoreIsACopy, match="is a copy, or was moved or restored"):
        copy.publish()


def test_gc_keeps_the_files_that_the_newest_snapshot_lists(world: PublishedWorld) -> None:
    first = publish_first(world)
    rebuild(world)

    behind = world.gc()
    world.publish()
    published = world.gc()

    assert (behind, published) == ([], [first])
    assert_up_to_date(world)


def test_gc_names_the_publication_that_data_of_a_new_table_waits_for(world: PublishedWorld) -> None:
    first = world.build(DAYS[0], {"x": [1]})
    rebuild(world)
    cleaner = Cleaner(world.engine, world.warehouse.root, [PublishedFiles(world.store, world.warehouse.root)])

    (kept,) = cleaner.plan_gc(keep=0, older_than_seconds=0.0).kept
    world.publish()

    assert kept.uuid == first
    assert kept.why.startswith("its table was never published, ")
    assert f"after `databuild admin publish {world.spec.asset}`, or after the next tick" in kept.why
    assert world.gc() == [first]


def test_gc_keeps_what_a_running_publication_may_list(world: PublishedWorld) -> None:
    """A publisher reads the log; then the instance is replaced and cleaned up, and only then comes the snapshot."""
    publish_first(world)
    seen = world.build(DAYS[1], {"x": [2]})
    before, seq = world.table().mark(), world.seq
    place = place_of(world.spec, world.warehouse.root)
    contents = contents_of_dataset(world.queries, world.spec, place, seq, world.catalog.left_out)
    world.taint(world.ref(DAYS[1]))
    world.build(DAYS[1])

    removed = world.gc()
    world.table().replace(contents, Mark(before.store_id, seq), before)

    assert removed == []
    for rows in rows_by_reader(world, newest_snapshot(world)).values():
        assert rows == rows_as_of(world, seq)
    world.publish()
    assert world.gc() == [seen]


def test_gc_that_has_recorded_a_removal_waits_for_the_table(iceberg: PublishedWorld) -> None:
    """The instance is seen again, and replaced, between the plan of a clean-up and the removal."""
    first = iceberg.build(DAYS[0], {"x": [1]})
    second = rebuild(iceberg)
    iceberg.publish()
    cleaner = Cleaner(iceberg.engine, iceberg.warehouse.root, [PublishedFiles(iceberg.store, iceberg.warehouse.root)])
    plan = cleaner.plan_gc(keep=0, older_than_seconds=0.0)
    iceberg.revert(DAYS[0], first)
    contents = contents_of_dataset(
        iceberg.queries,
        iceberg.spec,
        place_of(iceberg.spec, iceberg.warehouse.root),
        iceberg.seq,
        iceberg.catalog.left_out,
    )
    before, after = iceberg.table().mark(), Mark(iceberg.store.identity().id, iceberg.seq)
    iceberg.revert(DAYS[0], second)

    done = cleaner.carry_out(plan)
    iceberg.table().replace(contents, after, before)

    assert [kept.uuid for kept in done.kept] == [first]
    for rows in rows_by_reader(iceberg, newest_snapshot(iceberg)).values():
        assert [dict(row)["x"] for row in rows] == ["1"]
    iceberg.publish()
    finished = cleaner.carry_out(cleaner.plan_gc(keep=0, older_than_seconds=0.0)).finished
    assert [stored.uuid for stored in finished] == [first]


def test_gc_removes_the_manifests_of_expired_snapshots(iceberg: PublishedWorld) -> None:
    for number in range(3):
        iceberg.build(DAYS[0], {"x": [number]})
        iceberg.publish()
        iceberg.taint(iceberg.ref(DAYS[0]))
    iceberg.build(DAYS[0], {"x": [9]})
    iceberg.publish()

    iceberg.gc()

    table = iceberg_table(iceberg)
    (snapshot,) = table.snapshots()
    listed = {snapshot.manifest_list, *(manifest.manifest_path for manifest in snapshot.manifests(table.io))}
    left = Path(iceberg.warehouse.dataset_dir("sales"), "iceberg").rglob("*.avro")
    assert {f"file://{path}" for path in left} == listed
    assert_up_to_date(iceberg)


def test_gc_of_another_store_expires_no_snapshot_and_keeps_the_files_of_all(
    world: PublishedWorld, tmp_path: Path
) -> None:
    publish_first(world)
    before = set(world.table().files())
    rebuild(world)
    world.publish()
    other = PublishedFiles(PublishedWorld(tmp_path / "other", world.spec.table).store, world.warehouse.root)

    n_expired = other.expire("sales", 0.0)

    assert n_expired == 0
    assert len(snapshots(world)) == 2
    assert other.files("sales", 0.0) == before | set(world.table().files())


def test_vacuum_of_another_writer_keeps_the_files_of_earlier_instances(delta: PublishedWorld) -> None:
    publish_first(delta)

    with pytest.raises(DeltaError, match="Invalid retention period"):
        DeltaTable(delta.warehouse.dataset_dir("sales")).vacuum(retention_hours=10 * 365 * 24, full=True)


def test_an_iceberg_table_asks_other_engines_to_remove_no_files(iceberg: PublishedWorld) -> None:
    iceberg.build(DAYS[0], {"x": [1]})

    iceberg.publish()

    assert iceberg_table(iceberg).properties["gc.enabled"] == "false"


def test_the_iceberg_table_of_another_dataset_is_refused(iceberg: PublishedWorld) -> None:
    publish_first(iceberg)
    other = msgspec.structs.replace(iceberg.spec, asset="sales_too")

    with pytest.raises(TableOfAnotherDataset, match="shop.sales of sales_too is that of dataset sales"):
        publish(iceberg.engine, other, iceberg.warehouse.root)


@pytest.mark.parametrize("keeps_original", [True, False], ids=["copied", "moved"])
def test_a_taken_over_home_has_an_iceberg_table_of_its_own(keeps_original: bool, tmp_path: Path) -> None:
    original = PublishedWorld(tmp_path / "original", ICEBERG)
    publish_first(original)
    seq = original.seq
    original.close()
    if keeps_original:
        shutil.copytree(tmp_path / "original", tmp_path / "home")
    else:
        (tmp_path / "original").rename(tmp_path / "home")
    world = PublishedWorld(tmp_path / "home", ICEBERG)
    take_over(world.store, [world.warehouse])

    with pytest.raises(TableElsewhere, match=f"is not in {world.warehouse.root}/sales/iceberg"):
        world.publish()
    world.publish(take_over=True)

    assert_up_to_date(world)
    assert all(path.startswith(world.warehouse.root) for path in world.table().files())
    if keeps_original:
        assert list(snapshots(original).values()) == [seq]
