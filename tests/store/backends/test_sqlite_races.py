"""Of any number of simultaneous requests exactly one builds (rules 3.3, 8.4)."""

from __future__ import annotations

import multiprocessing
import queue
import time

import pytest

from databuild_dagster.engine.arcs import fire_arcs
from databuild_dagster.engine.engine import Engine
from databuild_dagster.engine.holders import new_id
from databuild_dagster.model import commands as c
from databuild_dagster.model.events import BufferedRun
from databuild_dagster.store.store import open_store
from tests.support.catalog import HERE, SmallCatalog, dataset

PROCESSES = 4
MAX_SECONDS = 240
REFS = [f"days@{day}" for day in range(12)]
DATASET = dataset("days", keys=[str(day) for day in range(12)])


def race(url, how, at, wins):
    engine = Engine(open_store(url), SmallCatalog([DATASET]))
    time.sleep(max(0.0, at - time.time()))
    won = []
    for ref in REFS:
        run = BufferedRun(new_id(), (ref,), ref.partition("@")[2])
        if how == "claim":
            claim = engine.handle(
                c.ClaimRefs(
                    launch_id=new_id(), job="days", location=HERE, dagster_run_id=new_id(), holder="h", runs=(run,)
                )
            ).claim
            assert len(claim.build) + len(claim.join) == 1
            won += claim.build
        else:
            launch = c.BufferLaunch(launch_id=new_id(), job="days", location=HERE, owner="me", runs=(run,))
            won += [ref] if engine.handle(launch).events else []
    wins.put(won)


def raced(target, *arguments):
    """All that the processes report, which begin at the same moment and have ended."""
    spawn = multiprocessing.get_context("spawn")
    reports = spawn.Queue()
    at = time.time() + 1.5
    racers = [spawn.Process(target=target, args=(*arguments, at, reports)) for _ in range(PROCESSES)]
    for racer in racers:
        racer.start()
    try:
        found = [reports.get(timeout=MAX_SECONDS) for _ in racers]
    except queue.Empty:
        pytest.fail(f"not every racer reported within {MAX_SECONDS} s after the last one")
    finally:
        for racer in racers:
            racer.join(250)
            racer.kill()
    assert [racer.exitcode for racer in racers] == [0] * PROCESSES
    return [item for report in found for item in report]


@pytest.mark.parametrize("how", ["claim", "buffer"])
def test_processes_racing_for_refs_build_each_exactly_once(make_world, shared_url, how):
    """Rule 8.4"""
    world = make_world(DATASET, url=shared_url)
    if how == "buffer":
        world.handle(c.CreateWants(wants=tuple((ref,) for ref in REFS), ttl_seconds=None))

    won = raced(race, shared_url, how)

    assert sorted(won) == sorted(REFS)
    assert [len(world.queries.instances.history(ref)) for ref in REFS] == [1] * len(REFS)


ARC = dataset("woken", "days", keys=[str(day) for day in range(12)], subscribe=["days"])


def fire(url, at, fired):
    engine = Engine(open_store(url), SmallCatalog([DATASET, ARC]))
    time.sleep(max(0.0, at - time.time()))
    fired.put(fire_arcs(engine, "orchestrator"))


def test_orchestrators_racing_to_fire_arcs_fire_each_exactly_once(make_world, shared_url):
    """Rule 10.5"""
    world = make_world(DATASET, ARC, url=shared_url)
    world.live(*REFS)

    lots = raced(fire, shared_url)

    woken = [f"woken@{day}" for day in range(12)]
    assert sorted(lots) == sorted(woken)
    assert [len(world.queries.wants.of_ref(ref)) for ref in woken] == [1] * len(woken)
