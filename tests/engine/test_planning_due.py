"""No asset's due refs keep another asset's from being looked at (rule 11.6)."""

from __future__ import annotations

import pytest

from databuild_dagster.model import commands as c
from databuild_dagster.model.datasets import DatasetKind
from databuild_dagster.model.states import InstanceState
from tests.support.catalog import HERE, dataset
from tests.support.orchestrator import Orchestrator

BUILDING = InstanceState.BUILDING
KEYS = [f"{number:02}" for number in range(20)]


@pytest.mark.parametrize("kind", [DatasetKind.BOUNDARY, DatasetKind.SOURCE])
def test_lots_of_a_source_that_have_not_come_keep_nothing_waiting(make_world, kind):
    """Rule 11.6: 35 days of five-minute lots stopped all other assets."""
    world = make_world(dataset("readings", keys=KEYS, kind=kind), dataset("day", ("readings", "all")), dataset("other"))
    here = Orchestrator(world)
    world.want("day")
    here.tick(due_refs=4)
    world.want("other")

    here.tick(due_refs=4)

    assert world.states("day", "other") == [InstanceState.UPSTREAM_BUILDING, BUILDING]


def test_due_refs_of_a_job_that_may_launch_no_more_keep_nothing_waiting(make_world):
    """Rule 11.6: 10,500 due partitions of a job with a concurrency of 1 did."""
    world = make_world(dataset("slow", keys=KEYS, concurrency=1, most=1), dataset("other"))
    here = Orchestrator(world)
    world.want(*(f"slow@{key}" for key in KEYS))
    here.tick(due_refs=4)
    world.want("other")

    here.tick(due_refs=4)

    assert world.state("other") is BUILDING


def test_the_tick_after_a_part_that_is_all_set_aside_looks_at_the_next_part(make_world):
    """Rule 11.6: each tick looks at the part of the asset's refs after the one before."""
    world = make_world(dataset("regions", keys=KEYS, most=1))
    here = Orchestrator(world)
    world.want(*(f"regions@{key}" for key in KEYS))
    world.catalog.datasets["regions"] = dataset("regions", keys=KEYS[9:10], most=1)
    world.handle(c.RegisterDatasets(location=HERE, datasets=tuple(world.catalog.datasets.values())))

    reports = [here.tick(due_refs=4) for _ in range(5)]

    assert [len(report.launched) for report in reports] == [0, 0, 1, 0, 0]
    assert reports[0].set_aside.keys() == {f"regions@{key}" for key in KEYS[:4]}


def test_after_the_last_part_an_asset_is_looked_at_from_its_most_urgent_ref(make_world, monkeypatch):
    """Rule 11.6"""
    world = make_world(dataset("regions", keys=KEYS[:6]))
    here = Orchestrator(world)
    world.want(*(f"regions@{key}" for key in KEYS[:6]))
    monkeypatch.setattr(world.catalog, "inputs", lambda spec, key: 1 / 0)

    seen = [sorted(here.tick(due_refs=4).set_aside) for _ in range(3)]

    assert [len(names) for names in seen] == [4, 2, 4]
    assert seen[0] == seen[2]


def test_the_limit_on_due_refs_is_divided_among_the_assets_that_have_any(make_world):
    """Rule 11.6: and each part is the most urgent of its asset."""
    world = make_world(dataset("a", keys=KEYS), dataset("b", keys=KEYS), dataset("c"), dataset("idle"))
    world.want(*(f"{asset}@{key}" for asset in "ab" for key in KEYS), "c")
    world.want("b@19", priority=1)

    found = world.queries.planning.due_refs(world.queries.datasets.all(), world.clock.now, 6)

    assert [ref.ref for ref in found.refs] == ["b@19", "a@00", "a@01", "b@00", "c"]
    assert {world.queries.datasets.all()[id].asset for id in found.cut_off} == {"a", "b"}


def test_due_refs_that_are_within_the_limit_together_are_not_divided(make_world):
    """Rule 11.6: the parts would be 65 and 10."""
    keys = [f"{number:03}" for number in range(110)]
    world = make_world(dataset("a", keys=keys), dataset("b", keys=KEYS[:10]))
    world.want(*(f"a@{key}" for key in keys), *(f"b@{key}" for key in KEYS[:10]))
    world.want("b@09", priority=1)

    found = world.queries.planning.due_refs(world.queries.datasets.all(), world.clock.now, 130)

    assert [len(found.refs), found.refs[0].ref, found.cut_off] == [120, "b@09", set()]
