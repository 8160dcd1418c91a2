"""The sentence about a canceled ref that is built again, and the command that prevents it (rule 6.10)."""

from __future__ import annotations

import pytest

from databuild_dagster.engine.why.built_again import built_again
from databuild_dagster.model.states import InstanceState
from tests.support.catalog import dataset

KEYS = [str(key) for key in range(9)]


@pytest.fixture
def world(make_world):
    return make_world(dataset("day"), dataset("month", "day"), dataset("many", keys=KEYS))


def test_the_command_in_the_sentence_ends_the_wants_of_what_waits(world):
    want = world.want("month")
    world.miss("month", "day")
    world.start("day")
    world.cancel("day")

    (sentence,) = built_again(world.engine, ["day", "month"])

    assert (
        sentence
        == f"day is built again, because month waits for it; `databuild want cancel {want[-8:]}` prevents that."
    )
    world.cancel_want(want)
    assert (world.due(), built_again(world.engine, ["day"])) == ([], [])


def test_nothing_is_said_of_a_ref_that_no_want_names(world):
    world.start("day")
    world.cancel("day")

    assert world.state("day") is InstanceState.UP_FOR_RETRY
    assert built_again(world.engine, ["day"]) == []


def test_many_refs_are_counted(world):
    for key in KEYS:
        world.start(f"many@{key}")
        world.cancel(f"many@{key}", keep_wants=True)

    assert built_again(world.engine, [f"many@{key}" for key in KEYS])[3:] == ["6 more refs are built again."]
