"""An instance is named with the newest snapshot of its table that holds it, and a tag keeps that snapshot (rules 4.6, 10.10)."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from databuild_dagster.features.tables.errors import NoTags, NotInTable, TagTaken
from databuild_dagster.features.tables.receipts import InTable, in_tables, tag_snapshot
from databuild_dagster.store.queries.instances import Instance
from tests.support.published import DAYS, DELTA, ICEBERG, PublishedWorld
from tests.support.table_readers import iceberg_table, newest_snapshot, rows_as_of, rows_by_reader, snapshots

BOTH = pytest.mark.parametrize("table", [ICEBERG, DELTA], ids=["iceberg", "delta"])
PATIENCE_SECONDS = 60.0


def instance(world: PublishedWorld, uuid: str) -> Instance:
    (found,) = (one for one in world.queries.instances.lineage(uuid) if one.uuid == uuid)
    return found


def named(world: PublishedWorld, *uuids: str) -> dict[str, InTable]:
    instances = [instance(world, uuid) for uuid in uuids]
    return in_tables(
        world.store, world.warehouse.root, {one.uuid: one.ref for one in instances}, seconds=PATIENCE_SECONDS
    )


def tag(world: PublishedWorld, uuid: str, name: str) -> None:
    one = instance(world, uuid)
    tag_snapshot(world.store, world.spec, world.warehouse.root, one.uuid, one.ref, name, seconds=PATIENCE_SECONDS)


def replaced(world: PublishedWorld) -> tuple[str, str, int]:
    """Two instances of one partition, each of them published; the last snapshot with the first one."""
    first = world.build(DAYS[0], {"x": [1]})
    world.publish()
    world.build(DAYS[1], {"x": [2]})
    world.publish()
    with_first = newest_snapshot(world)
    world.taint(world.ref(DAYS[0]))
    second = world.build(DAYS[0], {"x": [3]})
    world.publish()
    return first, second, with_first


def test_an_instance_is_named_with_the_newest_snapshot_that_holds_it(world: PublishedWorld) -> None:
    first, second, with_first = replaced(world)

    found = named(world, first, second)

    assert (found[first].snapshot, found[second].snapshot) == (with_first, newest_snapshot(world))
    assert {found[uuid].seq for uuid in (first, second)} == {snapshots(world)[found[uuid].snapshot] for uuid in found}
    for rows in rows_by_reader(world, with_first).values():
        assert rows == rows_as_of(world, found[first].seq)


def test_an_instance_whose_data_is_removed_is_in_no_snapshot(world: PublishedWorld) -> None:
    first, second, _ = replaced(world)

    assert world.gc() == [first]

    found = named(world, first, second)
    assert (found[first].snapshot, found[second].snapshot) == (None, newest_snapshot(world))


def test_a_table_that_cannot_be_read_leaves_the_rest_of_the_receipt(tmp_path: Path) -> None:
    world = PublishedWorld(tmp_path, msgspec.structs.replace(ICEBERG, catalog="no-such"))
    uuid = world.build(DAYS[0], {"x": [1]})

    found = named(world, uuid)[uuid]

    assert found.snapshot is None
    assert "'no-such'" in str(found.why)


def test_gc_keeps_a_tagged_snapshot_and_its_data(iceberg: PublishedWorld) -> None:
    first, second, with_first = replaced(iceberg)
    seq = snapshots(iceberg)[with_first]
    tag(iceberg, first, "audit-2024")
    iceberg.taint(iceberg.ref(DAYS[0]))
    iceberg.build(DAYS[0], {"x": [4]})
    iceberg.publish()

    removed = iceberg.gc()

    assert removed == [second]
    assert set(snapshots(iceberg)) == {with_first, newest_snapshot(iceberg)}
    assert named(iceberg, first)[first].tags == ("audit-2024",)
    for rows in rows_by_reader(iceberg, with_first).values():
        assert rows == rows_as_of(iceberg, seq)


def test_a_tag_is_given_once_and_stays_on_its_snapshot(iceberg: PublishedWorld) -> None:
    first, second, with_first = replaced(iceberg)
    tag(iceberg, first, "audit")

    tag(iceberg, first, "audit")
    with pytest.raises(TagTaken, match=f"has a branch or tag 'audit' already, on snapshot {with_first}"):
        tag(iceberg, second, "audit")
    with pytest.raises(TagTaken):
        tag(iceberg, second, "main")

    assert iceberg_table(iceberg).refs()["audit"].snapshot_id == with_first


def test_a_tag_of_a_delta_table_or_of_no_snapshot_is_refused(iceberg: PublishedWorld, delta: PublishedWorld) -> None:
    in_delta, unpublished = delta.build(DAYS[0], {"x": [1]}), iceberg.build(DAYS[0], {"x": [1]})
    delta.publish()

    with pytest.raises(NoTags, match="Delta has no tags"):
        tag(delta, in_delta, "audit")
    with pytest.raises(NotInTable, match=f"holds instance {unpublished}"):
        tag(iceberg, unpublished, "audit")
