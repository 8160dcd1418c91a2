"""A build whose process lives and whose work does not move is named to those who wait for it (rule 8.3)."""

from __future__ import annotations

import pytest

from databuild_dagster.engine.why.awaited import awaited_by
from databuild_dagster.engine.why.explain import explain
from databuild_dagster.engine.why.preview import Action, annotate
from databuild_dagster.engine.why.reasons import MIN_PAST, TIMES_USUAL
from databuild_dagster.model.plan import plan
from tests.support.catalog import dataset

KEYS = [str(key) for key in range(9)]
USUAL = 20.0


@pytest.fixture
def world(make_world):
    world = make_world(dataset("day", keys=KEYS))
    for key in KEYS[:MIN_PAST]:
        world.start(f"day@{key}")
        world.clock.turn(USUAL)
        world.succeed(f"day@{key}")
    return world


def sentence(world, ref):
    return awaited_by(world.engine, [ref], world.clock.now).sentence


def test_a_build_that_takes_much_longer_than_usual_is_named_to_all_who_wait(world):
    world.start("day@8")
    world.clock.turn(TIMES_USUAL * USUAL - 1)
    assert "usual" not in sentence(world, "day@8")
    world.clock.turn(1)
    slow = (
        f"5 times as long as usual, so its work may stand still: "
        f"`databuild want cancel --job-runs --retry {world.job_run('day@8')}` builds it again"
    )

    (cause,) = explain(world.engine, "day@8").causes
    registered = {spec.asset: spec for spec in world.queries.datasets.all().values()}
    graph = plan(["day@8"], registered, world.catalog)
    verdict = annotate(world.engine, graph).verdicts["day@8"]

    assert sentence(world, "day@8").endswith(slow)
    assert cause.why.endswith(slow)
    assert (verdict.action, verdict.reason.endswith(slow)) == (Action.JOIN, True)


def test_a_launch_of_many_job_runs_may_take_as_much_longer(world):
    world.start("day@7", "day@8")
    launch = world.queries.job_runs.get(world.job_run("day@7")).launch_id
    assert len(world.queries.job_runs.of_launch(launch)) == 2

    world.clock.turn(2 * TIMES_USUAL * USUAL - 1)
    before = sentence(world, "day@7")
    world.clock.turn(1)

    assert ("usual" in before, "usual" in sentence(world, "day@7")) == (False, True)


def test_without_enough_past_launches_no_build_is_slow(make_world):
    world = make_world(dataset("day", keys=KEYS))
    for key in KEYS[: MIN_PAST - 1]:
        world.start(f"day@{key}")
        world.clock.turn(USUAL)
        world.succeed(f"day@{key}")
    world.start("day@8")
    world.clock.turn(1_000_000)

    assert "usual" not in sentence(world, "day@8")
