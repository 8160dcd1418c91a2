"""The seed's scenarios from beginning to end (DataBuild, "Testing Strategy"; rules 5-7)."""

from __future__ import annotations

import pytest

from databuild_dagster.model import commands as c
from databuild_dagster.model.states import InstanceState, WantState
from tests.support.catalog import dataset

_I, _W = InstanceState, WantState


def test_four_wants_and_a_dep_miss(make_world):
    """The bug that led to the seed: the second want stayed Idle, and the dep miss panicked over it."""
    world = make_world(dataset("alpha"), dataset("beta"))

    first = world.want("beta")
    assert world.want_state(first) is _W.IDLE
    world.start("beta")
    missed = world.uuid("beta")
    wants = [first, *(world.want("beta") for _ in range(3))]
    assert {world.want_state(want) for want in wants} == {_W.BUILDING}

    world.miss("beta", "alpha")
    assert {world.want_state(want) for want in wants} == {_W.UPSTREAM_BUILDING}
    late = world.want("beta")
    assert world.want_state(late) is _W.UPSTREAM_BUILDING

    world.start("alpha")
    world.succeed("alpha")
    assert {world.want_state(want) for want in wants} == {_W.IDLE}
    assert world.due() == ["beta"]

    world.start("beta")
    assert {world.want_state(want) for want in wants} == {_W.BUILDING}
    world.succeed("beta", inputs=["alpha"])
    assert {world.want_state(want) for want in [*wants, late]} == {_W.SUCCESSFUL}
    assert [instance.state for instance in world.queries.history("beta")] == [_I.UP_FOR_RETRY, _I.LIVE]
    assert world.uuid("beta") != missed


def test_taint_and_rebuild(make_world):
    """Old instances stay; new wants see the new one; wants within their TTL bring the rebuild."""
    world = make_world(dataset("beta"))
    want = world.want("beta")
    first = world.succeed("beta")

    world.taint("beta")
    assert world.canonical("beta").uuid == first
    assert world.want_state(want) is _W.IDLE

    second = world.succeed("beta")
    assert second != first
    assert world.want_state(want) is _W.SUCCESSFUL
    assert world.want_state(world.want("beta")) is _W.SUCCESSFUL
    assert [(i.uuid, i.state) for i in world.queries.history("beta")] == [(first, _I.TAINTED), (second, _I.LIVE)]


def test_a_diamond_is_built_once_each(make_world):
    """`top` needs `left` and `right`, which both need `base`."""
    world = make_world(*(dataset(name) for name in ("top", "left", "right", "base")))
    want = world.want("top")

    world.miss("top", "left", "right")
    world.miss("left", "base")
    world.miss("right", "base")
    assert len(world.derivative_wants("base")) == 1
    world.succeed("base")
    assert world.due() == ["left", "right"]
    world.succeed("left", inputs=["base"])
    assert world.state("top") is _I.UPSTREAM_BUILDING
    world.succeed("right", inputs=["base"])
    world.succeed("top", inputs=["left", "right"])

    assert world.want_state(want) is _W.SUCCESSFUL
    assert len(world.queries.history("base")) == 1
    assert world.due() == []


def test_a_chain_fails_and_is_repaired(make_world):
    """A hard failure at the bottom; an operator's taint there, and one new want on top, bring all of it."""
    world = make_world(*(dataset(name) for name in ("top", "middle", "bottom")))
    wants = {ref: world.want(ref) for ref in ("top", "middle")}
    world.miss("top", "middle")
    world.miss("middle", "bottom")

    world.fail("bottom", error="disk on fire")
    assert {world.want_state(want) for want in wants.values()} == {_W.UPSTREAM_FAILED}
    assert world.due() == []

    world.taint("bottom", reason="the disk was replaced")
    again = world.want("top")
    assert world.due() == ["top"]
    world.miss("top", "middle")
    world.miss("middle", "bottom")
    assert world.due() == ["bottom"]
    world.live("bottom", "middle", "top")

    assert world.want_state(again) is _W.SUCCESSFUL
    assert {world.want_state(want) for want in wants.values()} == {_W.UPSTREAM_FAILED}


def test_a_want_for_a_and_b_where_b_needs_a_and_a_is_lost(make_world):
    """Rules 14: with schedulability per want, as the seed had it, this want waits for itself for ever."""
    world = make_world(dataset("a"), dataset("b", "a"))
    want = world.want("a", "b")
    launch_id = world.start("a")
    world.miss("b", "a")

    world.handle(c.LoseLaunches(launch_ids=(launch_id,), reason="its process is gone"))
    assert world.state("b") is _I.UPSTREAM_BUILDING
    assert world.due() == ["a"]
    world.live("a", "b")

    assert world.want_state(want) is _W.SUCCESSFUL


@pytest.mark.databases("memory")
def test_what_was_the_state_when_the_job_ran(make_world):
    """The seed's question: 'what was the state of beta when job Y ran?' (rule 3.2)."""
    world = make_world(dataset("beta"))
    world.start("beta")
    built_at = world.seq
    uuid = world.succeed("beta")
    live_at = world.seq
    world.taint("beta")

    def state_at(seq):
        instance = world.view.instances_by_uuid([uuid])[uuid]
        moves = [
            after
            for kind, entity, at, _, _, after in world.view.history
            if (kind, entity) == ("instances", instance.id) and at <= seq
        ]
        return moves[-1]

    assert [state_at(seq) for seq in (built_at, live_at, world.seq)] == ["Building", "Live", "Tainted"]
