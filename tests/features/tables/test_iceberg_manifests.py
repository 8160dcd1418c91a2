"""Manifests of an Iceberg table are bounded, and a move rewrites few of them."""

from __future__ import annotations

from datetime import date, timedelta
from pathlib import Path

import pytest

from databuild_dagster.features.tables import iceberg_manifests
from tests.support.published import ICEBERG, PublishedWorld
from tests.support.table_readers import iceberg_table

KEYS = [(date(2024, 1, 1) + timedelta(days=day)).isoformat() for day in range(24)]


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> PublishedWorld:
    """Twenty partitions in manifests of at most five files; four more may be built."""
    monkeypatch.setattr(iceberg_manifests, "MAX_FILES", 5)
    world = PublishedWorld(tmp_path, ICEBERG, KEYS)
    for number, key in enumerate(KEYS[:20]):
        world.build(key, {"x": [number]})
    world.publish()
    return world


def manifests(world: PublishedWorld) -> dict[str, int]:
    """Each manifest of the newest snapshot, with its live files."""
    table = iceberg_table(world)
    found = table.current_snapshot().manifests(table.io)
    return {one.manifest_path: one.added_files_count + one.existing_files_count for one in found}


def test_a_manifest_has_a_bounded_number_of_files(world: PublishedWorld) -> None:
    assert list(manifests(world).values()) == [5, 5, 5, 5]


def test_a_move_rewrites_the_manifest_of_its_partition_alone(world: PublishedWorld) -> None:
    before = manifests(world)
    world.taint(world.ref(KEYS[7]))
    world.build(KEYS[7], {"x": [100]})

    world.publish()

    after = manifests(world)
    assert len(before.keys() & after.keys()) == 3
    assert list(after.values()) == [5, 5, 5, 5]


def test_new_partitions_behind_all_others_share_a_manifest(world: PublishedWorld) -> None:
    before = manifests(world)
    for key in KEYS[20:]:
        world.build(key, {"x": [0]})
        world.publish()

    after = manifests(world)

    assert before.keys() <= after.keys()
    assert sorted(after.values()) == [4, 5, 5, 5, 5]


def test_a_manifest_without_live_files_is_left_out_of_the_next_snapshot(world: PublishedWorld) -> None:
    for key in KEYS[:5]:
        world.taint(world.ref(key))
    world.publish()
    world.taint(world.ref(KEYS[5]))

    world.publish()

    assert 0 not in manifests(world).values()
    assert sum(manifests(world).values()) == 14
