"""What a build waits for, in the words that it prints (rule 8.9)."""

from __future__ import annotations

import pytest

from databuild_dagster.engine.why.awaited import awaited_by
from databuild_dagster.model.datasets import DatasetKind
from tests.support.catalog import dataset
from tests.support.orchestrator import Orchestrator

KEYS = [str(key) for key in range(9)]


@pytest.fixture
def world(make_world):
    return make_world(
        dataset("day", keys=KEYS),
        dataset("month", ("day", "all")),
        dataset("one", keys=KEYS, concurrency=1),
        dataset("plain", kind=DatasetKind.PLAIN),
    )


def sentence(world, *serving):
    return awaited_by(world.engine, serving, world.clock.now).sentence


def test_a_running_job_run_is_named_with_its_process_and_since_when(world):
    world.miss("month", "day@1", "day@2")
    launch_id = world.buffer("day@1", "day@2")
    job_run = world.canonical("day@1").job_run
    queued = sentence(world, "month")
    world.clock.turn(60)
    world.start_launch(launch_id, holder="host-1/boot/1/4711/5")

    assert queued == f"day@1 and 1 more: job run {job_run} is queued since 2023-11-14T22:13:20Z, orchestrator"
    assert sentence(world, "month") == (
        f"day@1 and 1 more: job run {job_run} builds it since 2023-11-14T22:14:20Z, process 4711 on host-1"
    )


def test_each_launch_is_named_up_to_a_few(world):
    refs = [f"day@{key}" for key in KEYS[:5]]
    for ref in refs:
        world.start(ref)

    found = sentence(world, *refs)

    assert [part.split(":")[0] for part in found.split("; ")] == ["day@0", "day@1", "day@2", "and 2 other launches"]


def test_a_launch_of_others_that_takes_the_room_of_the_job_is_waited_for(world):
    world.start("one@1")
    world.want("one@2")
    assert Orchestrator(world).tick(serving=["one@2"]).idle

    assert sentence(world, "one@2").startswith("one@1: job run ")


def test_a_launch_of_others_that_nothing_needs_is_not_waited_for(world):
    world.start("day@1")
    world.miss("month", "day@2")

    assert awaited_by(world.engine, ["month"], world.clock.now) == ([], None, {}, [])
    assert sentence(world, "month") == "nothing that is known"


def test_a_retry_that_comes_later_is_waited_for(world):
    world.fail("day@1", kind="transient")

    assert sentence(world, "day@1") == "the retry at 2023-11-14T22:13:25Z"
