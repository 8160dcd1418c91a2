"""A clock that ran ahead and was set right: everything that waits for a time goes on (rules 3.1, 5.5, 6.8, 6.9)."""

from __future__ import annotations

import logging

import pytest

from databuild_dagster.engine.engine import Engine
from databuild_dagster.engine.judge import LEASE_SECONDS
from databuild_dagster.engine.log_time import PACE, clock_is_behind, forget_warned
from databuild_dagster.model import commands as c
from databuild_dagster.model.states import InstanceState, WantState
from tests.support.orchestrator import Orchestrator

HOURS = 5 * 3600.0


@pytest.fixture
def orchestrator(world):
    """It has ticked for some time."""
    orchestrator = Orchestrator(world)
    orchestrator.tick_for(60)
    return orchestrator


@pytest.fixture
def jump(world):
    """One command by a clock that is hours ahead, which is set right at once."""

    def jump():
        world.clock.set(HOURS)
        world.want("e", ttl=None)
        world.clock.set(-HOURS)

    return jump


def test_time_goes_on_behind_the_log_and_the_clock_comes_up_with_it(world, jump):
    """Rule 3.1"""
    jump()
    head = world.queries.events.head().at

    assert world.engine.now() == head
    world.clock.turn(100)
    assert world.engine.now() == pytest.approx(head + 100 * PACE)
    world.want("a")
    assert world.queries.events.head().at == pytest.approx(head + 100 * PACE)
    world.clock.turn(100)
    assert world.engine.now() == pytest.approx(head + 200 * PACE)
    world.clock.turn(HOURS / (1 - PACE))
    assert world.engine.now() == world.clock.now


def test_a_transient_failure_is_retried_when_its_backoff_has_passed(world, orchestrator, jump):
    """Rule 6.8"""
    world.want("a")
    orchestrator.tick()
    jump()
    world.fail("a", kind="transient")

    report = orchestrator.tick_for(15)

    assert len(report.launched) == 2, "a again, and e"
    assert world.state("a") is InstanceState.BUILDING


def test_a_want_expires_and_is_not_launched(world, orchestrator, jump):
    """Rules 5.4, 5.5"""
    jump()
    orchestrator.tick()
    want = world.want("a", ttl=5.0)
    world.cancel("e")

    world.clock.turn(6)
    report = orchestrator.tick()

    assert report.expired == [want]
    assert world.want_state(want) is WantState.EXPIRED
    assert world.state("a") is None


def test_an_sla_is_missed_when_its_time_has_passed(world, orchestrator, jump):
    """Rule 5.5"""
    jump()
    want = world.want("a", sla=30.0)

    assert orchestrator.tick_for(20).sla_missed == []
    assert orchestrator.tick_for(20).sla_missed == [want]


def test_a_process_that_begins_later_goes_on_from_where_time_has_come(world, orchestrator, jump):
    """Rule 5.5: else what it wants would have expired at birth."""
    jump()
    orchestrator.tick()
    orchestrator.tick_for(1200)
    orchestrator.tick()

    later = world.process()

    assert later.now() == pytest.approx(world.engine.now())
    assert later.now() > world.queries.events.head().at + 1000
    outcome = later.handle(c.CreateWants(wants=(("b",),), ttl_seconds=60.0), actor="tester")
    orchestrator.tick()
    assert world.want_state(outcome.want_ids[0]) not in (WantState.EXPIRED, WantState.FAILED)


def test_another_machine_goes_on_from_the_last_tick(world, orchestrator, jump):
    """Its measurements begin at another time."""
    jump()
    orchestrator.tick()
    orchestrator.tick_for(1200)
    begun = world.clock.steady()

    there = Engine(
        world.store,
        world.catalog,
        heartbeats=world.engine.heartbeats,
        clock=world.clock,
        steady=lambda: world.clock.steady() - begun,
        new_id=world.ids,
    )

    assert there.now() == pytest.approx(world.engine.now(), abs=10)


def test_a_clock_that_is_behind_is_logged_once(world, orchestrator, jump, caplog):
    forget_warned(world.store.url)
    jump()

    with caplog.at_level(logging.WARNING):
        orchestrator.tick_for(20)
        world.want("a")

    (said,) = [record.getMessage() for record in caplog.records if "clock" in record.getMessage()]
    assert "17995 s before the last event of the log" in said
    assert "check the clocks" in said
    first = next(event for event in world.queries.events.after() if event.at > world.clock.now + LEASE_SECONDS)
    assert f"the clock of tester ran ahead at event {first.seq}, 2023-11-15T03:14:20Z" in said


def test_the_process_whose_clock_ran_ahead_is_named_if_its_event_has_it(world):
    forget_warned(world.store.url)
    launch = world.buffer("a")
    world.clock.set(HOURS)
    world.start_launch(launch, holder="host-7/boot/namespace/4711/1")
    world.clock.set(-HOURS)

    said = clock_is_behind(world.queries.events, world.queries.events.head().at, world.clock.now)

    assert "process 4711 on host-7, ran ahead" in said


def test_less_than_a_lease_is_not_worth_a_sentence(world):
    url = world.store.url
    forget_warned(url)

    assert clock_is_behind(world.queries.events, LEASE_SECONDS, 0.0) is None
    assert clock_is_behind(world.queries.events, LEASE_SECONDS + 1, 0.0) is not None
    assert clock_is_behind(world.queries.events, LEASE_SECONDS + 1, 0.0) is None

    forget_warned(url)
    assert clock_is_behind(world.queries.events, LEASE_SECONDS + 1, 0.0) is not None
