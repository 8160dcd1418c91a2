"""A thread that looks between two ticks (rule 6.9)."""

from __future__ import annotations

import pytest

from databuild_dagster.engine.judge import LEASE_SECONDS, Judge
from databuild_dagster.engine.lookout import LOOK_SECONDS, Lookout, look_at, lookout_over_launches
from databuild_dagster.model.states import InstanceState
from tests.support.catalog import dataset
from tests.support.orchestrator import Orchestrator

DATABASES = ("sqlite",)


def test_a_lookout_observes_a_launch_that_no_tick_has_seen(world):
    """Rule 6.9: it may begin and die between two ticks that are a minute apart."""
    judge = Judge(gone=lambda holder: False)
    lookout = lookout_over_launches(world.engine, judge)
    assert not lookout.look(), "no launch is open"
    world.want("a")
    world.start("a")
    (launch,) = world.queries.launches.open()
    world.engine.beat([launch.launch_id])
    beat = world.engine.heartbeats.last([launch.launch_id])[launch.launch_id]

    for _ in range(int(LEASE_SECONDS / LOOK_SECONDS) + 2):
        assert lookout.look()
        world.clock.turn(LOOK_SECONDS)

    judge.look(world.clock.steady())
    assert "it has sent no heartbeat" in judge.verdict(launch, beat, None, world.clock.steady())


def test_a_look_that_waits_for_the_database_is_a_break(world):
    """Rule 6.9: no process could beat meanwhile, and the tick may read before the first one beats again."""
    judge = Judge(gone=lambda holder: False)

    def names():
        world.clock.turn(LEASE_SECONDS)
        yield "one"

    world.engine.beat(["one"])
    look_at(world.engine, judge, ["one"])
    world.clock.turn(LOOK_SECONDS)

    heartbeats, now = look_at(world.engine, judge, names())

    assert judge.why_gone("one", "somewhere", (None, heartbeats["one"]), now) is None


def test_a_lookout_ends_when_there_is_nothing_to_observe_or_nothing_to_read(world):
    """It is kept by the next tick."""

    def is_away():
        raise OSError

    for names in (list, is_away):
        lookout = Lookout(world.engine, Judge(), names)
        lookout._kept_at = world.clock.steady()

        lookout._live(pause=lambda seconds: None)


def launched(world):
    """An orchestrator, its lookout, and the launch of `a` that it has begun."""
    here = Orchestrator(world)
    world.want("a")
    here.tick()
    (launch_id,) = [launch.launch_id for launch in world.queries.launches.open()]
    here.start(launch_id)
    return here, lookout_over_launches(world.engine, here.judge), launch_id


@pytest.mark.parametrize("slow", [0, 16], ids=["alone", "beside a slow sensor"])
@pytest.mark.parametrize("interval", [1, 5, 9, 10, 11, 15, 29, 30, 45, 60])
def test_a_dead_host_is_noticed_within_45_seconds_at_any_interval_of_ticks(make_world, interval, slow):
    """Rule 6.9: a heartbeat comes every 10 s, a look every 5 s, and a tick whenever Dagster evaluates the sensor."""
    for died_at in range(100, 100 + interval + slow, 7):
        world = make_world(dataset("a"))
        here, lookout, launch_id = launched(world)
        next_tick = 0
        for second in range(died_at + 200):
            if second % 10 == 3 and second < died_at:
                world.engine.beat([launch_id])
                last_beat = second
            if second >= next_tick:
                here.tick(interval_seconds=interval)
                lookout._kept_at = world.clock.steady()
                next_tick = second + interval + slow
            if second % LOOK_SECONDS == 0:
                lookout.look()
            if launch_id not in {launch.launch_id for launch in world.queries.launches.open()}:
                break
            world.clock.turn(1)

        assert LEASE_SECONDS < second - last_beat <= 45


def test_the_next_tick_ends_the_dagster_run_of_a_launch_that_was_lost_before_it(world):
    """Rule 6.9: and its remains are removed by the duties of that tick."""
    here, lookout, launch_id = launched(world)
    world.engine.beat([launch_id])
    for _ in range(10):
        world.clock.turn(LOOK_SECONDS)
        lookout.look()
    assert world.state("a") is InstanceState.UP_FOR_RETRY

    report = here.tick()

    assert "it has sent no heartbeat" in report.lost[launch_id]
    assert here.launcher.failed
    assert here.tick().lost == {}
