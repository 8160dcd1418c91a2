"""Metrics of a job: its success rate, and the builds that a delegation avoided (rule 8.5)."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from databuild_dagster.model import commands as c
from databuild_dagster.model.errors import NotFound
from databuild_dagster.store import job_metrics
from databuild_dagster.store.job_metrics import metrics_of_jobs
from tests.support.catalog import dataset
from tests.support.orchestrator import Orchestrator
from tests.support.world import COMPLETE

EQUAL = replace(COMPLETE, content_hash="x:1")


@pytest.fixture
def world(make_world):
    return make_world(*(dataset(name) for name in "abc"), *(dataset(name, job="trio") for name in ("x", "y", "z")))


def again(world, *refs, inputs=(), manifest=EQUAL):
    world.taint(*refs)
    for ref in refs:
        world.succeed(ref, inputs=inputs, manifest=manifest)


def test_metrics_count_each_ended_job_run_once_and_estimate_the_seconds_saved(world):
    """Rule 8.5"""
    world.job_run("a")
    world.clock.turn(20)
    world.succeed("a")
    for run in ("A", "B", "C"):
        world.claim("a", dagster_run_id=run)
    world.fail("b")
    world.taint("b")
    world.job_run("b")

    metrics = {metric.job: metric for metric in metrics_of_jobs(world.store)}

    assert metrics["a"].counts == {"Succeeded": 1, "Skipped": 3}
    assert metrics["a"].success_rate == 1.0
    assert (metrics["a"].avoided, metrics["a"].seconds_saved) == (3, 60.0)
    assert metrics["b"].counts == {"Failed": 1, "Running": 1}
    assert metrics["b"].success_rate == 0.0
    assert metrics["b"].seconds_saved is None


def test_builds_that_equal_rows_cut_off_are_counted_for_each_ref_and_launch(world):
    """Rules 8.5, 4.8"""
    world.succeed("a", manifest=EQUAL)
    for name in ("b", "x"):
        world.job_run(name)
        world.clock.turn(20)
        world.succeed(name, inputs=["a"])
    for _ in range(2):
        again(world, "a")
    since = world.clock.now + 1
    world.clock.turn(10)
    again(world, "a", manifest=replace(COMPLETE, content_hash="x:2"))

    found = {metric.job: (metric.cut_off, metric.seconds_saved) for metric in metrics_of_jobs(world.store)}

    assert found == {"a": (0, 0.0), "b": (2, 40.0), "x": (2, 40.0)}
    assert {metric.cut_off for metric in metrics_of_jobs(world.store, since=since)} == {0}


def cut_off(world, job):
    return {metric.job: metric.cut_off for metric in metrics_of_jobs(world.store)}[job]


def test_equal_rows_cut_off_no_build_that_another_input_makes_necessary(world):
    """Rules 8.5, 4.8"""
    for name in "ac":
        world.succeed(name, manifest=EQUAL)
    world.succeed("b", inputs=["a", "c"])
    again(world, "a")
    while_no_build_follows = cut_off(world, "b")
    again(world, "a")
    again(world, "c", manifest=replace(COMPLETE, content_hash="x:2"))
    again(world, "b", inputs=["a", "c"])

    assert while_no_build_follows == 1
    assert cut_off(world, "b") == 1, "the first alone; a build followed the second"


def test_equal_rows_cut_off_no_ref_that_was_built_without_them(world):
    """Rules 8.5, 4.8"""
    world.succeed("a", manifest=EQUAL)
    world.succeed("b", inputs=["a"])
    again(world, "b")
    for _ in range(5):
        again(world, "a")

    assert cut_off(world, "b") == 0


@pytest.mark.parametrize("compacted", ["a", "b"])
def test_equal_rows_cut_off_the_same_builds_after_a_compaction(world, compacted):
    """Rules 8.5, 4.8"""
    for name, inputs in (("a", []), ("b", ["a"])):
        world.succeed(name, inputs=inputs, manifest=EQUAL)
    for _ in range(2):
        manifest = replace(EQUAL, uri="elsewhere")
        uuid, new_id = world.uuid(compacted), world.ids()
        world.handle(c.ReplaceFiles(ref=compacted, uuid=uuid, job_run_id=new_id, manifest=manifest))
        again(world, "a")

    assert cut_off(world, "b") == 2


@pytest.mark.databases("sqlite")
def test_builds_that_are_cut_off_cost_the_same_each(world):
    """Rule 8.5"""
    world.succeed("a", manifest=EQUAL)
    for name in "bcxyz":
        world.succeed(name, inputs=["a"])
    few = steps_after(world, 20)

    many = steps_after(world, 60)

    assert cut_off(world, "b") == 80
    assert many < 5 * few


def steps_after(world, n_rebuilds):
    """SQLite's steps to count the builds that are cut off, after further builds with equal rows."""
    for _ in range(n_rebuilds):
        again(world, "a")
    n_steps = 0

    def step():
        nonlocal n_steps
        n_steps += 1

    with world.store.reading() as connection:
        connection.set_progress_handler(step, 1)
        try:
            connection.execute(job_metrics._CUT_OFF, {"since": 0.0, "until": job_metrics.MAX_TIME}).fetchall()
        finally:
            connection.set_progress_handler(None, 0)
    return n_steps


#: How a request comes in; `databuild build` records a want, and ticks until it has ended.
DOORS = {
    "want": lambda world, n: world.want("a"),
    "build": lambda world, n: (world.want("a"), Orchestrator(world).tick()),
    "dagster run of a person": lambda world, n: world.claim("a", dagster_run_id=f"R{n}"),
    "dagster run of a schedule": lambda world, n: world.claim("a", dagster_run_id=f"R{n}", by_person=False),
    "want of a schedule": lambda world, n: world.handle(c.CreateWants(wants=(("a",),), source="schedule")),
}


@pytest.mark.parametrize("door", DOORS)
def test_the_same_history_has_the_same_success_rate_by_every_door(world, door):
    """Rule 8.5: a failure, a success and eight reuses."""
    world.fail("a")
    world.taint("a")
    world.succeed("a")
    for n in range(8):
        world.clock.turn(10)
        DOORS[door](world, n)

    (metrics,) = metrics_of_jobs(world.store, "a")

    assert metrics.counts == {"Failed": 1, "Succeeded": 1, "Skipped": 8}
    assert (metrics.success_rate, metrics.avoided) == (0.9, 8)
    assert len(world.queries.instances.history("a")) == 2


def test_a_window_has_what_ended_and_was_asked_for_in_it(world):
    """Rule 8.5"""
    world.fail("a")
    world.clock.turn(100)
    since = world.clock.now
    world.taint("a")
    world.succeed("a")
    world.want("a")
    world.clock.turn(100)
    until = world.clock.now
    world.want("a")

    (inside,) = metrics_of_jobs(world.store, "a", since=since, until=until)
    (before,) = metrics_of_jobs(world.store, "a", until=since)

    assert (inside.counts, inside.avoided) == ({"Succeeded": 1, "Skipped": 1}, 1)
    assert before.counts == {"Failed": 1}


def test_a_job_that_never_ran_is_refused(world):
    world.succeed("a")

    assert metrics_of_jobs(world.store, "a", until=0.0) == []
    with pytest.raises(NotFound, match="There is no job with a job run 'aa'"):
        metrics_of_jobs(world.store, "aa")


def test_sources_that_wake_an_arc_avoid_no_build_each(make_world):
    """Rule 8.5: a person or a schedule asked, or else no build was avoided; findings/first-use.md 10."""
    hours = [f"h{n}" for n in range(5)]
    world = make_world(dataset("hourly", keys=hours), dataset("daily", subscribe=[("hourly", "all")]))
    orchestrator = Orchestrator(world)
    orchestrator.tick()
    for hour in hours:
        world.succeed(f"hourly@{hour}")
        orchestrator.tick()
    world.want("daily")
    for launch in orchestrator.launcher.orders:
        world.start_launch(launch.launch_id)
    orchestrator.tick()
    world.succeed("daily")

    assert {metrics.job: metrics.avoided for metrics in metrics_of_jobs(world.store)}["daily"] == 1


def test_a_request_that_asks_twice_avoids_no_build(world):
    """Rules 8.1, 8.5"""
    for _ in range(2):
        world.handle(c.CreateWants(wants=(("a",),), request_id="R"))

    world.live("a")

    assert {metric.avoided for metric in metrics_of_jobs(world.store)} == {0}
