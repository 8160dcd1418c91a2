"""The states of many partitions at once, and what the pages ask beside them."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from databuild_dagster.model.states import InstanceState
from databuild_dagster.store.queries.canonical import MarkedGroup
from tests.support.catalog import dataset
from tests.support.world import EMPTY, World

DAYS = ("2023-01-30", "2023-01-31", "2023-02-01", "2023-02-02")


@pytest.fixture
def world() -> Iterator[World]:
    world = World([dataset("day", keys=DAYS), dataset("day_long", keys=DAYS), dataset("sum", ("day", "all"))])
    world.live("day@2023-01-30", "day_long@2023-01-30")
    world.succeed("day@2023-01-31", manifest=EMPTY)
    world.want("day@2023-02-01")
    yield world
    world.close()


def test_a_marked_ref_has_its_state_its_manifest_and_its_wish(world: World) -> None:
    found = {marked.ref: marked for marked in world.queries.canonical.marked([f"day@{day}" for day in DAYS])}

    assert {ref: (marked.state, marked.manifest_state, marked.is_wanted) for ref, marked in found.items()} == {
        "day@2023-01-30": (InstanceState.LIVE, "complete", False),
        "day@2023-01-31": (InstanceState.LIVE, "empty", False),
        "day@2023-02-01": (None, None, True),
    }
    assert found["day@2023-01-30"].uuid == world.uuid("day@2023-01-30")


def test_groups_count_the_refs_of_one_dataset_by_the_beginning_of_their_keys(world: World) -> None:
    found = sorted(world.queries.canonical.marked_groups("day", 7), key=lambda group: group.beginning)

    assert found == [
        MarkedGroup("2023-01", InstanceState.LIVE, False, 2),
        MarkedGroup("2023-02", None, True, 1),
    ]


def test_numbers_are_those_of_live_and_tainted_refs_of_one_dataset(world: World) -> None:
    world.taint("day@2023-01-30")
    world.fail("day@2023-02-02")

    numbers = world.queries.canonical.numbers

    assert numbers("day", "rows") == {"day@2023-01-30": 10, "day@2023-01-31": 0}
    assert numbers("day", "bytes") == {"day@2023-01-30": 100, "day@2023-01-31": 0}
    assert numbers("day", "seconds").keys() == {"day@2023-01-30", "day@2023-01-31"}


def test_the_instances_built_from_an_instance_are_found_from_its_side(world: World) -> None:
    world.succeed("sum", inputs=["day@2023-01-30", "day@2023-01-31"])
    used, unused = world.uuid("day@2023-01-30"), world.uuid("day_long@2023-01-30")

    n, built = world.queries.instances.built_from(used, 10)

    assert (n, [instance.uuid for instance in built]) == (1, [world.uuid("sum")])
    assert world.queries.instances.built_from(unused, 10) == (0, [])
    assert [found.uuid for found in world.queries.instances.named([unused, used, "none"])] == [used, unused]
    assert (used, world.uuid("sum")) in world.queries.instances.inputs_of([world.uuid("sum"), unused], 10)
    assert len(world.queries.instances.inputs_of([world.uuid("sum")], 1)) == 1
