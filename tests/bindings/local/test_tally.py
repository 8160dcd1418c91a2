"""The counts of a build, from the log of a real engine: each ref once, with the seconds of each asset (rule 4.1)."""

from collections.abc import Iterator

import pytest

from databuild_dagster.bindings.local.tally import Tally
from databuild_dagster.engine.holders import this_process
from databuild_dagster.model.states import JobRunState
from tests.support.catalog import dataset
from tests.support.world import World


@pytest.fixture
def world() -> Iterator[World]:
    made = World([dataset("day"), dataset("month", "day"), dataset("other")])
    yield made
    made.close()


def counts_of(tally: Tally) -> dict[str, dict[str, int]]:
    tally.look()
    return {asset: dict(+counts) for asset, counts in tally.count().items()}


def test_a_ref_is_in_one_column_from_its_dep_miss_to_its_end(world: World) -> None:
    """findings/first-use.md 5"""
    tally = Tally(world.queries, ["month"], world.seq)
    seen = [counts_of(tally)]

    for act in (
        lambda: world.start("month"),
        lambda: world.miss("month", "day"),
        lambda: world.start("day"),
        lambda: world.succeed("day"),
        lambda: world.start("month"),
        lambda: world.succeed("month", inputs=["day"]),
    ):
        act()
        seen.append(counts_of(tally))

    assert seen == [
        {"month": {"waiting": 1}},
        {"month": {"building": 1}},
        {"month": {"waiting": 1}, "day": {"waiting": 1}},
        {"month": {"waiting": 1}, "day": {"building": 1}},
        {"month": {"waiting": 1}, "day": {"live": 1}},
        {"month": {"building": 1}, "day": {"live": 1}},
        {"month": {"live": 1}, "day": {"live": 1}},
    ]


def test_a_ref_fails_with_its_input_and_a_tainted_one_waits_again(world: World) -> None:
    tally = Tally(world.queries, ["month", "other"], world.seq)
    world.live("other")
    world.miss("month", "day")
    assert counts_of(tally)["other"] == {"live": 1}

    world.fail("day")
    world.taint("other")

    assert counts_of(tally) == {"month": {"failed": 1}, "other": {"waiting": 1}, "day": {"failed": 1}}


def test_the_inputs_of_a_ref_that_waited_before_are_counted(world: World) -> None:
    world.miss("month", "day")

    tally = Tally(world.queries, ["month"], world.seq)

    assert counts_of(tally) == {"month": {"waiting": 1}, "day": {"waiting": 1}}


def test_the_seconds_of_an_asset_are_those_of_its_launches(world: World) -> None:
    tally = Tally(world.queries, ["month"], world.seq)
    world.buffer("month")
    world.clock.turn(5)
    world.start_launch(next(iter(world.queries.launches.open())).launch_id)
    world.clock.turn(2)
    world.miss("month", "day")
    world.clock.turn(100)
    world.succeed("day")
    world.start("month")
    world.clock.turn(3)
    tally.look()

    assert tally.seconds(world.clock.now)["month"] == 5
    assert list(tally.running()) == ["month"]


def test_each_job_run_of_this_process_has_its_outcome(world: World) -> None:
    tally = Tally(world.queries, ["month"], world.seq)
    world.start_launch(world.buffer("other"), holder=this_process())
    world.succeed("other")
    world.start_launch(world.buffer("month"), holder=this_process())
    world.miss("month", "day")
    world.start_launch(world.buffer("day"), holder=this_process())
    world.cancel("day", keep_wants=True)

    assert counts_of(tally) == {"month": {"waiting": 1}, "day": {"waiting": 1}, "other": {"live": 1}}
    assert list(tally.outcomes.values()) == [JobRunState.SUCCEEDED, JobRunState.DEP_MISSED, JobRunState.CANCELED]


def test_what_another_process_builds_beside_the_build_is_not_counted(world: World) -> None:
    tally = Tally(world.queries, ["month"], world.seq)

    world.succeed("other")

    assert counts_of(tally) == {"month": {"waiting": 1}}
    assert tally.outcomes == {}
