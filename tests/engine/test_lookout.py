"""A thread that looks between two ticks (rule 6.9)."""

from __future__ import annotations

from databuild_dagster.engine.judge import LEASE_SECONDS, Judge
from databuild_dagster.engine.lookout import LOOK_SECONDS, Lookout, lookout_over_launches

DATABASES = ("sqlite",)


def test_a_lookout_observes_a_launch_that_no_tick_has_seen(world):
    """Rule 6.9: it may begin and die between two ticks that are a minute apart."""
    judge = Judge(gone=lambda holder: False)
    lookout = lookout_over_launches(world.engine, judge)
    assert not lookout.look(), "no launch is open"
    world.want("a")
    world.start("a")
    (launch,) = world.queries.open_launches()
    world.engine.beat([launch.launch_id])
    beat = world.engine.heartbeats.last([launch.launch_id])[launch.launch_id]

    for _ in range(int(LEASE_SECONDS / LOOK_SECONDS) + 2):
        assert lookout.look()
        world.clock.turn(LOOK_SECONDS)

    judge.look(world.clock.steady())
    assert "it has sent no heartbeat" in judge.verdict(launch, beat, None, world.clock.steady())


def test_a_lookout_ends_when_there_is_nothing_to_observe_or_nothing_to_read(world):
    """It is kept by the next tick."""

    def is_away():
        raise OSError

    for names in (list, is_away):
        lookout = Lookout(world.engine, Judge(), names)
        lookout._kept_at = world.clock.steady()

        lookout._live(pause=lambda seconds: None)
