"""Wants by filter, now and as of an earlier event (rules 3.2, 5, 5.9)."""

from __future__ import annotations

import pytest

from databuild_dagster.model import commands as c
from databuild_dagster.model.errors import NotFound
from databuild_dagster.model.states import WantState
from databuild_dagster.store.queries.wants import WantFilter
from tests.support.catalog import dataset
from tests.support.world import World


@pytest.fixture
def world():
    world = World([dataset("sales", keys=["1", "2"]), *(dataset(name) for name in ("a", "b", "sales_report"))])
    yield world
    world.store.close()


def refs(world, **fields):
    which = WantFilter(**fields)
    found = world.queries.wants.newest(which)
    assert world.queries.wants.count(which) == len(found)
    return [want.refs for want in found]


def test_wants_are_found_by_any_ref_that_they_name_and_by_dataset(world):
    world.want("sales@1", "a")
    world.want("sales@2")
    world.want("sales_report")

    assert refs(world, ref="sales@1") == refs(world, ref="a") == [("sales@1", "a")]
    assert refs(world, asset="sales") == [("sales@2",), ("sales@1", "a")]
    assert refs(world, asset="b") == []


def test_derivative_wants_are_left_out_or_alone(world):
    world.want("a")
    world.miss("a", "b")

    assert refs(world, derivative=False) == refs(world, source="user") == [("a",)]
    assert refs(world, source="job run") == [("b",)]
    assert refs(world) == [("b",), ("a",)]


def test_the_newest_derivative_want_of_a_ref_is_found_while_it_is_open_or_failed(world):
    world.want("a", "b")
    world.miss("a", "b")
    (derivative,) = world.derivative_wants("b")
    assert [want.id for want in world.queries.wants.derivative(["a", "b"])] == [derivative.id]

    world.fail("b")
    assert [want.state for want in world.queries.wants.derivative(["b"])] == [WantState.FAILED]


def test_wants_are_listed_as_of_an_earlier_event(world):
    world.want("a")
    first = world.seq
    world.live("a")
    world.want("b")

    assert refs(world, open_only=True) == [("b",)]
    assert refs(world, open_only=True, seq=first) == [("a",)]
    assert refs(world, states=(WantState.SUCCESSFUL,), seq=first) == []
    (then,) = world.queries.wants.newest(WantFilter(seq=first))
    assert then.state is WantState.IDLE


def test_a_missed_sla_is_unknown_as_of_an_earlier_event(world):
    want = world.want("a", sla=60.0)
    before = world.seq
    world.clock.turn(61.0)
    world.handle(c.MissSlas(want_ids=(want,)))

    assert world.want_view(want).sla_missed_at == world.clock.now
    assert world.queries.wants.named(want, before)[0].sla_missed_at is None


def test_the_end_of_a_want_is_that_of_the_state_it_had_then(world):
    want = world.want("a")
    is_open = world.seq
    world.live("a")
    ended, ended_at = world.seq, world.clock.now
    world.clock.turn(60.0)
    world.taint("a")
    reopened = world.seq
    world.clock.turn(60.0)
    world.live("a")

    found = [world.queries.wants.named(want, seq)[0].ended_at for seq in (is_open, ended, reopened, None)]

    assert found == [None, ended_at, None, world.clock.now]


def test_a_source_that_does_not_exist_is_refused_with_a_near_name(world):
    world.queries.wants.check_source("schedule")

    with pytest.raises(NotFound, match="schedul'.*schedule"):
        world.queries.wants.check_source("schedul")


def test_the_newest_wants_alone_are_looked_at_for_any_filter(world):
    world.want("sales@1")
    world.cancel_want(world.want("sales@2"))
    world.want("a")

    of_two = world.queries.wants.before_newest(2)

    assert world.queries.wants.before_newest(3) is None
    assert refs(world, after_id=of_two) == [("a",), ("sales@2",)]
    assert refs(world, after_id=of_two, asset="sales") == [("sales@2",)]
    assert refs(world, open_only=True, asset="sales") == [("sales@1",)]
    assert refs(world, after_id=of_two, states=(WantState.IDLE,)) == [("a",)]


def test_the_states_in_a_request_are_those_of_its_wants_now_and_then(world):
    request = world.handle(c.CreateWants(wants=(("a",), ("b",)))).request_id
    then = world.seq
    world.live("a")

    now = world.queries.wants.states_in_requests([request])

    assert sorted(state.value for _, state in now) == ["Idle", "Successful"]
    assert world.queries.wants.states_in_requests([request], then) == [(request, WantState.IDLE)]
    assert world.queries.wants.states_in_requests([request], then - 1) == []


def test_a_want_that_failed_is_repaired_once_all_of_its_refs_are_live(world):
    want = world.handle(c.CreateWants(wants=(("a", "b"),))).want_ids[0]
    other = world.want("b")
    world.fail("a")
    world.taint("a", reason="to be built again")
    world.live("a")
    before = world.queries.wants.repaired([want, other])
    world.live("b")

    assert (before, world.queries.wants.repaired([want, other])) == ([], [want])
