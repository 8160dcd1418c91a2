"""Wanted refs of sources are observed in turn (rules 6.11, 11.6)."""

from __future__ import annotations

from databuild_dagster.model.datasets import DatasetKind
from databuild_dagster.model.states import InstanceState
from tests.support.catalog import dataset
from tests.support.orchestrator import Orchestrator

KEYS = [f"{number:02}" for number in range(10)]


def test_the_tenth_wanted_partition_of_a_source_is_seen_when_a_tick_looks_at_four(make_world):
    world = make_world(dataset("plain", keys=KEYS, kind=DatasetKind.SOURCE), dataset("reader", ("plain", "all")))
    here = Orchestrator(world)
    world.want("reader")
    here.tick(due_refs=4)
    here.foreign.materialize("plain@09", "dagster event 1")

    reports = [here.tick(due_refs=4) for _ in range(3)]

    assert sorted(ref for report in reports for ref in report.arrived) == ["plain@09"]
    assert world.state("plain@09") is InstanceState.LIVE


def test_sources_are_not_looked_at_for_what_has_arrived(make_world):
    """Rule 11.3"""
    world = make_world(dataset("plain", kind=DatasetKind.SOURCE))
    here = Orchestrator(world)
    world.want("plain")
    here.foreign.materialize("plain", "dagster event 1")
    assert here.tick().arrived == ["plain"]
    here.foreign.observe = None

    assert here.tick().idle
