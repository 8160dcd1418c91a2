"""Stories of wants that run out of time: TTL, SLA, and who hears of it (rules 5.5, 5.8)."""

from __future__ import annotations

import pytest

from databuild_dagster.engine.judge import Judge
from databuild_dagster.engine.tick import tick
from databuild_dagster.engine.tick_pass import Pass
from databuild_dagster.model import commands as c
from databuild_dagster.model.errors import NotFound
from databuild_dagster.model.states import InstanceState, JobRunState, WantState
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


def test_the_queued_job_run_of_an_expired_want_ends_and_a_running_one_goes_on(world):
    """Rules 5.5, 6.10"""
    world.want("a", ttl=60)
    queued = world.buffer("a")
    world.want("b", ttl=60)
    world.start("b")

    world.clock.turn(60)
    turn(world)

    assert [run.state for run in world.queries.job_runs_of_launch(queued)] == [JobRunState.CANCELED]
    assert world.states("a", "b") == [InstanceState.UP_FOR_RETRY, InstanceState.BUILDING]


def test_the_lease_of_a_waiting_ref_and_its_derivative_wants_end_with_its_last_want(world):
    """Rule 6.4"""
    world.want("a", ttl=60)
    world.miss("a", "b")
    assert world.derivative_wants("b")

    world.clock.turn(60)
    turn(world)

    assert world.state("a") is InstanceState.UP_FOR_RETRY
    assert world.open_wants("b") == []


def test_another_want_that_lives_longer_keeps_it_going(world):
    """Rule 5.4"""
    short = world.want("a", ttl=60)
    long = world.want("a", ttl=None)
    launch = world.buffer("a")

    world.clock.turn(60)
    turn(world)

    assert (world.want_state(short), world.want_state(long)) == (WantState.EXPIRED, WantState.BUILDING)
    assert [run.state for run in world.queries.job_runs_of_launch(launch)] == [JobRunState.QUEUED]


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


@pytest.mark.parametrize("end", ["success", "cancel"])
def test_what_was_done_or_taken_back_in_time_misses_no_sla(world, end):
    """Rule 5.5"""
    want = world.want("a", sla=60)
    if end == "success":
        world.succeed("a")
    else:
        world.cancel_want(want)

    world.clock.turn(3600)

    assert turn(world).sla_missed == []


def test_an_sla_that_was_met_is_met_for_good(world):
    """Rule 5.5: also when the want is opened again, fails and is retried."""
    world.want("a", sla=60)
    world.succeed("a")
    world.taint("a")
    world.fail("a")
    world.handle(c.RetryRefs(refs=("a",)))

    world.clock.turn(3600)

    assert turn(world).sla_missed == []
    assert {want.deadline for want in world.queries.wants_of_ref("a")[1:]} == {None}


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


def test_a_derivative_want_inherits_the_deadline_and_raises_no_alert_of_its_own(world):
    """Rule 5.8: what blocks urgent work is urgent; there is one alert, for who asked."""
    want = world.want("a", sla=60, priority=3)
    world.miss("a", "b")
    (derivative,) = world.derivative_wants("b")
    assert (derivative.priority, derivative.deadline) == (3, world.want_view(want).deadline)

    world.clock.turn(60)

    assert turn(world).sla_missed == [want]


def test_what_is_overdue_is_recorded_by_one_of_several_orchestrators(world):
    """Rule 11.1: ticks may overlap."""
    want = world.want("a", ttl=60, sla=30)
    world.clock.turn(60)
    expiring, late = world.queries.overdue_wants(world.clock.now, 10)
    turn(world)
    before = world.seq

    assert world.handle(c.ExpireWants(want_ids=tuple(expiring))).events == ()
    assert world.handle(c.MissSlas(want_ids=tuple(late))).events == ()
    assert (expiring, late, world.seq) == ([want], [want], before)


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
