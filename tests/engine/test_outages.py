"""Launches wait while what they need is out of reach, and go on when it is back (rules 6.17, 6.18)."""

from __future__ import annotations

import pytest

from databuild_dagster.engine.outages import (
    CAREFUL_LAUNCHES,
    CAREFUL_SECONDS,
    begin_outage,
    end_outage,
    hold,
    outages,
    release,
)
from databuild_dagster.engine.why.awaited import awaited_by
from databuild_dagster.engine.why.explain import explain
from databuild_dagster.model.datasets import DatasetKind
from databuild_dagster.model.decide.context import MAX_ATTEMPTS
from databuild_dagster.model.set_aside import Subject
from databuild_dagster.model.states import InstanceState
from databuild_dagster.model.surroundings import MAX_OUTAGES, PARTS_AFTER_LOSS, Fate, Surrounding
from tests.support.catalog import HERE, dataset
from tests.support.orchestrator import Orchestrator

DAYS = [f"d{number:02}" for number in range(20)]


@pytest.fixture
def world(make_world):
    return make_world(
        dataset("spark", spark=True),
        dataset("pandas"),
        dataset("plain", kind=DatasetKind.PLAIN),
        dataset("days", keys=DAYS, most=1),
        dataset("batch", keys=DAYS),
        dataset("left", keys=DAYS, job="both"),
        dataset("right", keys=DAYS, job="both"),
        dataset("elsewhere", location="there"),
    )


def launched(orchestrator):
    return sorted(asset for order in orchestrator.launcher.orders for asset in order.assets)


@pytest.mark.parametrize(
    ("what", "goes_on"), [(Surrounding.SPARK, ["pandas", "plain"]), (Surrounding.WAREHOUSE, ["plain"])]
)
def test_an_outage_holds_back_what_needs_it_and_nothing_else(world, what, goes_on):
    """Rule 6.17"""
    here = Orchestrator(world)
    world.want("spark")
    world.want("pandas")
    world.want("plain")
    begin_outage(world.engine, HERE, what, "no answer", "test")

    here.tick()

    assert launched(here) == goes_on
    assert world.state("spark") is None
    assert awaited_by(world.engine, ["spark"], world.clock.now).outages


def test_an_outage_of_one_location_is_none_of_another(world):
    """Rule 6.17"""
    there = Orchestrator(world, location="there")
    world.want("elsewhere")
    begin_outage(world.engine, HERE, Surrounding.WAREHOUSE, "no answer", "test")

    there.tick()

    assert launched(there) == ["elsewhere"]


def test_a_weekend_without_spark_fails_nothing(world):
    """Rule 6.17: given a want of a week, the ref fails once by the outage, waits two days, and is built."""
    here = Orchestrator(world)
    world.want("spark", ttl=7 * 86400.0)
    here.tick()
    world.fail("spark", owner=Surrounding.SPARK)
    begin_outage(world.engine, HERE, Surrounding.SPARK, "no answer", "job run")
    before = world.seq

    here.tick_for(2 * 86400, every=600)

    assert (world.state("spark"), world.seq) == (InstanceState.UP_FOR_RETRY, before)
    end_outage(world.engine, HERE, Surrounding.SPARK, "probe")
    here.tick()
    world.succeed("spark")
    assert world.state("spark") is InstanceState.LIVE


def test_an_outage_that_comes_again_and_again_counts_in_the_end(world):
    """Rule 6.17: a partition that ends its Spark is found."""
    here = Orchestrator(world)
    world.want("spark", ttl=None)
    n_failed = 0
    while world.state("spark") is not InstanceState.FAILED:
        here.tick()
        world.fail("spark", owner=Surrounding.SPARK)
        n_failed += 1
        begin_outage(world.engine, HERE, Surrounding.SPARK, "it ended", "job run")
        end_outage(world.engine, HERE, Surrounding.SPARK, "probe")
        world.clock.turn(600.0)

    assert n_failed == MAX_OUTAGES + MAX_ATTEMPTS


def test_a_few_launches_come_first_after_an_outage(world):
    """Rule 6.17"""
    here = Orchestrator(world)
    world.want(*(f"days@{day}" for day in DAYS))
    begin_outage(world.engine, HERE, Surrounding.WAREHOUSE, "no answer", "test")
    here.tick()
    end_outage(world.engine, HERE, Surrounding.WAREHOUSE, "probe")

    here.tick()
    assert len(here.launcher.orders) == CAREFUL_LAUNCHES
    world.clock.turn(CAREFUL_SECONDS)
    here.tick()
    assert len(here.launcher.orders) == len(DAYS)


def test_a_hold_lasts_until_a_person_ends_it(world):
    """Rule 6.17"""
    here = Orchestrator(world)
    world.want("spark")
    hold(world.engine, HERE, Surrounding.SPARK, "a new cluster", "anna")
    end_outage(world.engine, HERE, Surrounding.SPARK, "probe")

    here.tick()
    assert launched(here) == []
    assert any("held since" in cause.why for cause in explain(world.engine, "spark").causes)

    release(world.engine, HERE, Surrounding.SPARK, "anna")
    here.tick()
    assert launched(here) == ["spark"]


def test_an_outage_is_recorded_once_and_no_tick_ends_it(world):
    """Rule 11.7"""
    here = Orchestrator(world)
    begin_outage(world.engine, HERE, Surrounding.SPARK, "no answer after 8 s", "a job run")
    before = world.seq

    begin_outage(world.engine, HERE, Surrounding.SPARK, "no answer after 9 s", "another one")
    world.clock.turn(60.0)
    begin_outage(world.engine, HERE, Surrounding.SPARK, "connection refused", "a third one")
    here.tick()

    ((what, aside),) = outages(world.engine, HERE)
    assert (what, aside.kind, aside.reason) == (Surrounding.SPARK, Subject.OUTAGE, "no answer after 8 s")
    assert world.seq == before


def test_refs_lost_together_are_launched_apart_until_the_guilty_one_is_alone(world):
    """Rule 6.18: its neighbours are built, and it fails alone."""
    here = Orchestrator(world)
    world.want(*(f"batch@{day}" for day in DAYS), ttl=None)
    guilty = "batch@d07"
    for _ in range(30):
        world.clock.turn(600.0)
        n_before = len(here.launcher.orders)
        here.tick()
        for order in here.launcher.orders[n_before:]:
            world.start_launch(order.launch_id)
            refs = [f"batch@{key}" for key in order.partition_keys]
            if guilty in refs:
                world.lose(guilty, Fate.CRASHED)
            else:
                for ref in refs:
                    world.succeed(ref)
        if world.state(guilty) is InstanceState.FAILED:
            break

    assert world.state(guilty) is InstanceState.FAILED
    assert {world.state(f"batch@{day}") for day in DAYS} - {InstanceState.FAILED} == {InstanceState.LIVE}
    sizes = [
        len(order.partition_keys)
        for order in here.launcher.orders
        if guilty.removeprefix("batch@") in order.partition_keys
    ]
    assert sizes == [20, 20 // PARTS_AFTER_LOSS, 2, 1, 1, 1]


def test_the_outputs_of_a_lost_job_run_are_launched_together_again(world):
    """Rule 6.18"""
    here = Orchestrator(world)
    world.want(*(f"{asset}@{day}" for asset in ("left", "right") for day in DAYS), ttl=None)
    (launch,) = here.tick().launched
    world.start_launch(launch)
    world.lose("left@d00")

    again = here.tick().launched

    assert len(again) == PARTS_AFTER_LOSS
    assert {order.assets for order in here.launcher.orders} == {("left", "right")}
