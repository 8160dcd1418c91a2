"""The canonical instance of a ref at any seq or time, from the history (rules 3.2, 4.2)."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from databuild_dagster.model import commands as c
from databuild_dagster.model.states import InstanceState
from databuild_dagster.store.rebuild import rebuild
from tests.support.catalog import dataset
from tests.support.world import COMPLETE, EMPTY, World


def but_for_reasons(canonical):
    """Fields that an as-of answer has too."""
    return canonical._replace(reason=None, retry_at=None, known_origin=None)


def all_at(world, ref, seq):
    return world.queries.canonical.at([ref], seq)[ref]


def all_now(world, ref):
    return but_for_reasons(world.canonical(ref))


def remove(world, ref):
    uuids = tuple(instance.uuid for instance in world.queries.instances.history(ref))
    if uuids:
        world.handle(c.RemoveManifests(uuids=uuids, reason="enough of it", tainted=True))


@pytest.mark.parametrize("manifest", [COMPLETE, EMPTY], ids=["complete", "empty"])
def test_what_was_removed_since_was_there_then(world, manifest):
    """Rules 3.2, 10.8"""
    world.succeed("a", manifest=manifest)
    live = all_now(world, "a")
    was_live = world.seq
    world.taint("a")
    remove(world, "a")
    removed = world.seq

    assert all_at(world, "a", was_live) == live
    assert all_at(world, "a", removed - 1).manifest_state == manifest.state
    assert all_at(world, "a", removed).manifest_state == "removed"
    assert world.queries.instances.removed([live.uuid, "no such instance"]) == {live.uuid}


def test_a_dataset_of_then_has_the_refs_of_then(world):
    world.live("days@1", "days@2")
    then = world.seq
    world.taint("days@1")
    world.live("days@3", "a")

    found = world.queries.canonical.of_dataset_at("days", then)

    assert [(entry.ref, entry.state) for entry in found] == [
        ("days@1", InstanceState.LIVE),
        ("days@2", InstanceState.LIVE),
    ]


def test_the_last_change_says_when_an_instance_came_into_its_state(world):
    uuid = world.succeed("a")
    live_seq, live_at = world.seq, world.clock.now
    world.clock.turn(60)
    world.taint("a")

    assert world.queries.instances.last_change(uuid) == (InstanceState.TAINTED, world.seq, live_at + 60)
    assert world.queries.instances.last_change(uuid, live_seq) == (InstanceState.LIVE, live_seq, live_at)
    assert world.queries.instances.last_change(uuid, 1) is None
    assert world.queries.instances.last_change("no such instance") is None


def test_a_time_means_the_last_event_that_had_happened_by_then(world):
    """Rule 3.1: times never go back, and several events may have the same."""
    first = world.queries.events.time_of(1)
    world.clock.turn(10)
    world.live("a")
    seq, at = world.seq, world.clock.now
    world.clock.turn(10)
    world.live("b")

    assert world.queries.events.seq_at(first - 1) == 0
    assert world.queries.events.seq_at(at) == seq
    assert world.queries.events.seq_at(at + 5) == seq
    assert world.queries.events.seq_at(at + 10) == world.seq
    assert world.queries.events.seq_at(at + 10_000) == world.seq
    assert world.queries.events.time_of(world.seq + 1) is None


WORDS = {
    "live": lambda world, ref: world.state(ref) is None and world.live(ref),
    "again": lambda world, ref: world.state(ref) is InstanceState.TAINTED and world.live(ref),
    "start": lambda world, ref: world.state(ref) in (None, InstanceState.TAINTED) and world.start(ref),
    "fail": lambda world, ref: world.state(ref) is InstanceState.BUILDING and world.fail(ref),
    "taint": lambda world, ref: world.state(ref) in (InstanceState.LIVE, InstanceState.FAILED) and world.taint(ref),
    "remove": remove,
    "arrive": lambda world, ref: world.state(ref) is None and world.arrive(ref, "outside"),
    "miss": lambda world, ref: world.state(ref) is InstanceState.BUILDING and world.miss(ref, "c"),
}


@pytest.mark.databases("sqlite", also="postgres")
@given(st.lists(st.tuples(st.sampled_from(sorted(WORDS)), st.sampled_from(["a", "b"])), max_size=12))
def test_an_earlier_state_is_the_same_after_all_later_events(story):
    """Rule 3.2: after any event, and after a rebuild."""
    world = World([dataset(name) for name in "abc"])
    seen = {}
    for word, ref in story:
        WORDS[word](world, ref)
        seen |= {(world.seq, item): all_now(world, item) for item in "abc"}

    answer = {(seq, ref): all_at(world, ref, seq) for seq, ref in seen}
    rebuild(world.store)
    seen_again = {(seq, ref): all_at(world, ref, seq) for seq, ref in seen}
    world.store.close()

    assert answer == seen
    assert seen_again == seen
