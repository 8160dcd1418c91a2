"""The counts of a what-if, and its states (rule 8.10)."""

from __future__ import annotations

from databuild_dagster.engine.wording import json_of
from databuild_dagster.features.what_if.answers import what_if_shape
from databuild_dagster.features.what_if.questions import if_tainted
from tests.support.catalog import dataset
from tests.support.world import World


def shop() -> World:
    """A day of `raw` takes 10 s."""
    world = World([dataset("raw", keys="12", most=1), dataset("daily", "raw", keys="12", most=1)])
    world.start("raw@1")
    world.clock.turn(10)
    world.succeed("raw@1")
    world.succeed("daily@1", inputs=["raw@1"])
    return world


def test_a_what_if_counts_its_effects_and_has_the_states() -> None:
    found = json_of(what_if_shape(if_tainted(shop().engine, ["raw@1"])))

    assert found["counts"] == {"build": 1, "stale": 1}
    assert found["changes"][0] == {
        "ref": "raw@1",
        "job": "raw",
        "effect": "build",
        "reason": "tainted, as supposed, and an open want asks for it",
        "before": "Live",
        "after": "Live",
    }
    assert (found["what"], found["refs"], found["reached"]) == ("taint", ("raw@1",), 2)
    assert (found["launches"], found["seconds"], found["expected_seconds"]) == (1, 10.0, 10.0)
