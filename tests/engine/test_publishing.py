"""Availability: a line for each instance that became live, in the order of the log (rule 10.3)."""

from __future__ import annotations

from databuild_dagster.engine import publishing
from databuild_dagster.engine.publishing import publications, published_stretches
from databuild_dagster.model import commands as c
from databuild_dagster.model.events import OutputFact, RunSuccess
from tests.support.world import COMPLETE, EMPTY


def published(world):
    return [
        (publication.ref, publication.uuid, publication.state)
        for publication in publications(world.queries, 0, world.seq)
    ]


def test_what_was_built_and_what_arrived_is_published_once(world):
    """Rule 10.3: with rows or without."""
    world.live("a")
    world.succeed("days@2", manifest=EMPTY)
    world.arrive("b", "file:///b")

    expected = [
        ("a", world.uuid("a"), "complete"),
        ("days@2", world.uuid("days@2"), "empty"),
        ("b", world.uuid("b"), "complete"),
    ]
    assert published(world) == expected
    first, second, third = publications(world.queries, 0, world.seq)
    assert (first.dataset, first.manifest, third.manifest) == ("a", COMPLETE.uri, None)
    assert second.dataset == "days"
    taint_id = world.taint("a")
    world.untaint(taint_id)
    assert published(world) == expected, "what is live again was published before"


def test_what_failed_or_missed_is_not_published(world):
    """Rule 10.3"""
    world.miss("a", "b")
    world.fail("b")

    assert published(world) == []


def test_an_instance_that_its_own_event_tainted_was_live_to_no_reader(world):
    """Rule 7.3: a downstream taint met it while it was being built."""
    world.live("a")
    read = world.uuid("a")
    job_run = world.job_run("b")
    world.handle(c.TaintPartitions(refs=("a",), reason="wrong", downstream=True))

    world.handle(
        c.SucceedJobRuns(runs=(RunSuccess(job_run, (OutputFact(ref="b", inputs={"a": read}, manifest=COMPLETE),)),))
    )

    assert [ref for ref, *_ in published(world)] == ["a"]


def test_a_long_log_is_read_in_stretches_and_no_event_twice(world, monkeypatch):
    """Rule 10.3: who keeps the last seq misses none and has none twice."""
    for ref in "abcde":
        world.live(ref)
    monkeypatch.setattr(publishing, "MAX_EVENTS", 3)
    everything = publications(world.queries, 0, world.seq)

    for seen in range(len(everything) + 1):
        after = everything[seen - 1].seq if seen else 0
        found = [item for _, part in published_stretches(world.queries, after, follow=False) for item in part]
        assert found == everything[seen:]
