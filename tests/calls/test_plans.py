"""The stages of a plan (rule 8.6)."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from databuild_dagster.calls.plans import plan_of, plan_shape
from databuild_dagster.engine.why.preview import annotate
from databuild_dagster.engine.wording import json_of
from databuild_dagster.model.datasets import CodeSpec
from databuild_dagster.model.errors import PlanTooLarge
from databuild_dagster.model.plan import plan
from databuild_dagster.model.refs import Ref
from tests.support.catalog import dataset
from tests.support.questions import recorded_questions
from tests.support.world import World

DAYS = ("1", "2", "3")


def shop() -> World:
    """A day of `raw` takes 10 s, and a day of `daily` 20 s."""
    world = World([dataset("raw", keys=DAYS, most=1), dataset("daily", "raw", keys=DAYS, most=1)])
    for ref, seconds in (("raw@1", 10), ("daily@1", 20)):
        world.start(ref)
        world.clock.turn(seconds)
        world.succeed(ref, inputs=["raw@1"] if ref == "daily@1" else [])
    return world


def planned(world: World, *refs: str) -> dict[str, Any]:
    datasets = {spec.asset: spec for spec in world.queries.datasets.all().values()}
    return json_of(plan_shape(annotate(world.engine, plan(refs, datasets, world.catalog))))


def test_the_stages_of_a_plan_begin_when_the_longest_chain_before_has_ended() -> None:
    found = planned(shop(), "daily@2", "daily@3")

    assert found["stages"] == [
        {
            "job": job,
            "n_refs": 2,
            "refs": [f"{job}@2", f"{job}@3"],
            "launches": 2,
            "begins_after": begins,
            "seconds": seconds,
            "joined": False,
        }
        for job, begins, seconds in (("raw", 0.0, 10.0), ("daily", 10.0, 20.0))
    ]
    assert (found["launches"], found["seconds"], found["expected_seconds"]) == (4, 30.0, 60.0)


def test_a_plan_of_live_refs_takes_no_time() -> None:
    found = planned(shop(), "daily@1")

    assert (found["stages"], found["seconds"]) == ([], 0.0)


def test_a_plan_that_is_too_large_looks_for_no_earlier_instances(monkeypatch: pytest.MonkeyPatch) -> None:
    deterministic = [
        replace(spec, deterministic=True, code=CodeSpec()) for spec in (dataset("a", "b"), dataset("b", "c"))
    ]
    world = World([*deterministic, dataset("c")])
    asked = recorded_questions(monkeypatch)

    with pytest.raises(PlanTooLarge):
        plan_of(world.engine, [Ref("a")], None, most_refs=2, is_provided=True)

    assert [sql for sql in asked if "instances" in sql] == []
