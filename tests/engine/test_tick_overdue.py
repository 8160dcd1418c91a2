"""Stories of wants that run out of time: TTL, SLA, and who hears of it (rules 5.5, 5.8)."""

from __future__ import annotations

import pytest

from databuild_dagster.engine.judge import Judge
from databuild_dagster.engine.tick import tick
from databuild_dagster.engine.tick_pass import Pass
from databuild_dagster.model import commands as c
from databuild_dagster.model.errors import NotFound
from databuild_dagster.model.states import WantState
from tests.support.catalog import HERE, dataset
from tests.support.ports import HandForeign, HandLauncher


@pytest.fixture
def world(make_world):
    return make_world(*(dataset(name) for name in "abc"), dataset("top", "a"))


def turn(world):
    """One tick."""
    judge = Judge(gone=lambda holder: False)
    return tick(Pass(world.engine, HERE, HandLauncher(), HandForeign(), judge, owner="orchestrator"))


def test_a_want_expires_at_the_tick_after_its_time_and_never_again(world):
    """Rule 5.5: the orchestrator appends WantExpired."""
    world.live("b")
    want = world.want("a", "b", ttl=60)
    world.start("a")
    before = world.seq

    world.clock.turn(59)
    assert turn(world).expired == []
    world.clock.turn(1)
    report = turn(world)

    assert report.expired == [want]
    assert world.log(before) == ["WantExpired"]
    assert world.want_state(want) is WantState.EXPIRED
    assert turn(world).expired == []


def test_a_missed_sla_is_said_once_and_changes_nothing_else(world):
    """Rule 5.5"""
    want = world.want("a", sla=60)
    world.start("a")
    before = world.seq

    world.clock.turn(60)
    first, second = turn(world), turn(world)

    assert (first.sla_missed, second.sla_missed) == ([want], [])
    assert world.log(before) == ["WantSlaMissed"]
    assert world.want_state(want) is WantState.BUILDING
    assert world.want_view(want).sla_missed_at == world.clock.now


@pytest.mark.parametrize("end", ["failure", "expiry"])
def test_what_cannot_be_done_any_more_misses_its_sla_when_its_time_comes(world, end):
    """Rule 5.5"""
    want = world.want("a", sla=60, ttl=30 if end == "expiry" else None)
    if end == "failure":
        world.fail("a")
    else:
        world.start("a")
        world.clock.turn(30)
        turn(world)
    before = world.want_state(want)

    assert turn(world).sla_missed == []
    world.clock.turn(60)

    assert turn(world).sla_missed == [want]
    assert world.want_state(want) is before


def test_an_unknown_want_is_refused(world):
    with pytest.raises(NotFound, match="'unknown'"):
        world.handle(c.ExpireWants(want_ids=("unknown",)))


def test_a_clock_that_was_set_back_expires_nothing_early_and_forgets_nothing(world):
    """Rule 3.1: events never go back in time."""
    want = world.want("a", ttl=60)
    world.clock.turn(-3600)

    assert turn(world).expired == []
    world.clock.turn(3660)

    assert turn(world).expired == [want]
