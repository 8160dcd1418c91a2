"""The faults of a ref that is not live, and the wants that an instance was built for, for the UI (rule 7.1)."""

from __future__ import annotations

import pytest

from tests.support.catalog import dataset
from tests.support.world import World


@pytest.fixture
def world():
    world = World([dataset(name) for name in "abc"])
    yield world
    world.store.close()


def shown(world, *refs):
    return {ref: taint.reason for ref, taint in world.queries.instances.taints_to_show(refs).items()}


def test_the_newest_taint_in_force_is_the_reason(world):
    world.live("a")
    world.taint("a", reason="old")
    second = world.taint("a", reason="new")
    assert shown(world, "a") == {"a": "new"}

    world.untaint(second)

    assert shown(world, "a") == {"a": "old"}


def test_what_was_live_is_held_against_its_rebuild_until_that_is_live(world):
    world.live("a")
    world.taint("a", reason="wrong")

    world.start("a")
    assert shown(world, "a") == {"a": "wrong"}

    world.succeed("a")
    assert shown(world, "a") == {}


def test_a_taint_that_opens_what_had_failed_is_not_held_against_the_next_attempt(world):
    world.fail("a")
    world.taint("a", reason="to be tried again")
    assert shown(world, "a") == {"a": "to be tried again"}

    world.start("a")

    assert shown(world, "a") == {}


def test_tainted_refs_are_counted_and_the_first_named(world):
    world.live("a")
    world.live("b")
    world.taint("a", "b", reason="wrong")

    assert world.queries.instances.tainted_refs(["a", "b", "c"], 1) == {
        "a": (1, ("a",)),
        "b": (1, ("b",)),
        "c": (0, ()),
    }


def test_the_refs_of_a_taint_are_those_whose_canonical_instance_it_names(world):
    world.live("a")
    world.live("b")
    taint_id = world.taint("a", "b", reason="wrong")

    world.live("a")

    assert world.queries.instances.tainted_by(taint_id) == ("b",)


def test_the_taints_of_now_are_those_of_canonical_instances_the_newest_first(world):
    world.live("a", "b", "c")
    first = world.taint("a", "b", reason="wrong")
    second = world.taint("b", reason="worse")
    world.untaint(world.taint("c", reason="a mistake"))

    world.live("a")

    found = world.queries.instances.taints_now(10)
    assert [(taint.taint_id, taint.reason, taint.n, taint.refs) for taint in found] == [
        (second, "worse", 1, ("b",)),
        (first, "wrong", 1, ("b",)),
    ]
    assert [taint.taint_id for taint in world.queries.instances.taints_now(1)] == [second]


def test_an_instance_was_built_for_the_wants_that_were_open_when_it_became_live(world):
    world.want("a")
    world.live("a")
    world.clock.turn(1)
    world.want("a")

    found = world.queries.wants.origins([world.uuid("a")])

    before, _ = world.queries.wants.of_ref("a")
    (run,) = world.queries.job_runs.named([world.canonical("a").job_run]).values()
    assert found == {world.uuid("a"): (run.ended_at - run.started_at, [before.id])}


def test_events_are_picked_by_type_within_a_stretch_of_the_log(world):
    world.live("a")
    world.taint("a", reason="one")
    first = world.seq
    world.taint("a", reason="two")

    found = world.queries.events.named(["TaintCreated"], 0, first)

    assert [event.fact.reason for event in found] == ["one"]


def test_one_question_finds_the_end_of_the_log_and_whether_there_is_news(world):
    world.live("a")
    before = world.seq
    world.taint("a", reason="one")

    assert world.queries.events.news(["TaintCreated"], before) == (world.queries.events.head(), True)
    assert world.queries.events.news(["TaintCreated"], world.seq) == (world.queries.events.head(), False)
    assert world.queries.events.news(["WantCanceled"], before) == (world.queries.events.head(), False)
    assert World().queries.events.news(["WantCanceled"], 0) == ((0, 0.0), False)
