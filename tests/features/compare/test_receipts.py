"""The receipt of the pages is that of the command line, with the nearest instances and without places (rules 15, 4.6)."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from msgspec.structs import replace

from databuild_dagster.features.compare.receipts import NoReceipt, receipt_of, shown_receipt
from tests.support.catalog import dataset
from tests.support.published import DELTA, PublishedWorld
from tests.support.walk import Walk
from tests.support.world import COMPLETE, World

NAMES = "abcde"


@pytest.fixture
def world() -> Iterator[World]:
    world = World([dataset(name) for name in NAMES])
    yield world
    world.close()


def test_the_shown_receipt_has_the_instances_of_the_lineage(world: World) -> None:
    world.live(*NAMES)
    Walk(world, 5).take(250)
    built = [
        instance for name in NAMES for instance in world.queries.instances.history(name) if instance.live_at is not None
    ]

    for instance in built:
        lineage = {found.uuid: found for found in world.queries.instances.lineage(instance.uuid)}
        shown = shown_receipt(world.queries, instance.uuid)
        assert shown.instances[0].uuid == instance.uuid
        assert {entry.uuid: sorted(entry.inputs) for entry in shown.instances} == {
            uuid: sorted(found.inputs) for uuid, found in lineage.items()
        }
        assert not shown.is_cut

    assert max(len(world.queries.instances.lineage(instance.uuid)) for instance in built) > 3


def test_a_receipt_that_is_cut_has_the_nearest_instances(world: World) -> None:
    world.live("a")
    world.succeed("b", inputs=["a"])
    world.succeed("c", inputs=["b"])
    world.succeed("d", inputs=["b", "c"])

    cut = shown_receipt(world.queries, world.uuid("d"), 3)

    assert ([entry.ref for entry in cut.instances], cut.is_cut) == (["d", "b", "c"], True)
    assert [entry.n_inputs for entry in cut.instances] == [2, 1, 1]
    whole = shown_receipt(world.queries, world.uuid("d"), 4)
    assert ([entry.ref for entry in whole.instances], whole.is_cut) == (["d", "b", "c", "a"], False)


def test_a_receipt_names_the_first_rows_and_inputs_with_equal_rows(world: World) -> None:
    """Rule 4.8"""
    equal = replace(COMPLETE, content_hash="x:1")
    first = world.succeed("a", manifest=equal)
    world.succeed("b", inputs=["a"])
    world.taint("a")
    again = world.succeed("a", manifest=equal)

    b, read = shown_receipt(world.queries, world.uuid("b")).instances
    (now,) = shown_receipt(world.queries, again).instances

    assert [(one.ref, one.read, one.now) for one in b.equal_inputs] == [("a", first, again)]
    assert (b.rows_of, read.rows_of, now.rows_of) == (None, None, first)
    assert (read.equal_inputs, now.equal_inputs) == ((), ())


def test_the_shown_receipt_names_files_without_their_places(tmp_path: Path) -> None:
    world = PublishedWorld(tmp_path / "home", DELTA)
    uuid = world.build("2024-01-01", {"n": [1, 2]})

    (whole,) = receipt_of(world.queries, "sales@2024-01-01", uuid).instances
    (shown,) = shown_receipt(world.queries, uuid).instances
    world.close()

    assert str(tmp_path) in str(whole.manifest)
    assert str(tmp_path) not in str(shown)
    assert (shown.manifest, shown.n_files, shown.note) == (None, 1, None)
    assert (shown.rows, shown.schema) == (whole.rows, whole.schema) == (2, [["n", "long"]])
    assert [file.checksum for file in shown.files] == [file.checksum for file in whole.files]


def test_an_instance_that_was_never_live_has_no_receipt(world: World) -> None:
    world.live("a")
    world.fail("b")

    with pytest.raises(NoReceipt, match="b has no instance .* that was ever live"):
        shown_receipt(world.queries, world.uuid("b"))
    with pytest.raises(NoReceipt):
        receipt_of(world.queries, "b", world.uuid("a"))
    with pytest.raises(NoReceipt):
        receipt_of(world.queries, "c", None)


def test_a_receipt_of_an_older_version_says_that_its_provenance_is_unknown(world: World) -> None:
    """Rule 3.1: its events have no such field."""
    world.live("a")

    (entry,) = shown_receipt(world.queries, world.uuid("a")).instances

    assert "made_with" not in str(world.queries.events.raw())
    assert (entry.code, entry.config, entry.versions) == (None, None, None)
