"""The questions of the graph at an earlier event, and of two instances, in both databases (rules 3.2, 4.6)."""

from __future__ import annotations

from msgspec.structs import replace

from databuild_dagster.model.states import InstanceState
from databuild_dagster.store.queries.instances import DataFacts, InputCounts, InputPair
from databuild_dagster.store.queries.wants import WantFilter
from tests.support.world import COMPLETE


def test_the_graph_of_an_earlier_event_has_no_later_fact(world):
    first = world.succeed("a")
    made = world.seq
    second = world.succeed("b", inputs=["a"])
    built = world.seq
    world.taint("a")
    world.live("a")
    now, then = world.seq, world.queries.instances

    assert then.inputs_at([second], 5, made) == []
    assert then.inputs_at([second], 5, built) == then.uses_at([first], 5, built) == [(first, second)]
    assert [then.n_live_built_from_at(first, seq) for seq in (made, built, now)] == [0, 1, 1]
    seen = [then.at([first, second], seq) for seq in (made, built, now)]
    assert [[(one.ref, one.state, one.canonical) for one in found] for found in seen] == [
        [("a", InstanceState.LIVE, True)],
        [("a", InstanceState.LIVE, True), ("b", InstanceState.LIVE, True)],
        [("a", InstanceState.TAINTED, False), ("b", InstanceState.LIVE, True)],
    ]


def test_inputs_of_two_instances_differ_by_ref(world):
    old = world.succeed("a")
    first = world.succeed("c", inputs=["a"])
    world.taint("a", "c")
    new, b = world.succeed("a"), world.succeed("b")
    second = world.succeed("c", inputs=["a", "b"])

    counts, pairs = world.queries.instances.input_differences(first, second, 5)
    assert counts == InputCounts(added=1, removed=0, replaced=1)
    assert pairs == [InputPair("a", old, new, False), InputPair("b", None, b, False)]
    counts, pairs = world.queries.instances.input_differences(second, first, 1)
    assert (counts, len(pairs)) == (InputCounts(added=0, removed=1, replaced=1), 1)
    assert world.queries.instances.input_differences(first, first, 5) == (InputCounts(0, 0, 0), [])
    assert world.queries.instances.n_inputs_of([first, second, b]) == {first: 1, second: 2}
    assert world.queries.instances.data_facts([first, "none"]) == {
        first: DataFacts(files=1, rows=10, bytes=100, manifest_state="complete")
    }


def test_a_recorded_hash_is_found_by_uuid(world):
    first = world.succeed("a", manifest=replace(COMPLETE, content_hash="x:1"))
    second = world.succeed("b")

    assert world.queries.instances.content_hashes([first, second, "none"]) == {first: "x:1"}


def test_refs_that_were_borrowed_or_never_live_are_not_built_here(world):
    world.succeed("a")
    world.borrow("b")
    world.fail("c")

    assert world.queries.instances.refs_built() == ["a"]


def test_a_want_has_the_first_of_its_refs(world):
    want = world.want("a", "b", "c")

    (few,) = world.queries.wants.newest_cut(WantFilter(ref="b"), most=9, most_refs=2)
    n, page = world.queries.wants.refs_of(want, 2, 1)

    assert (few.refs, few.n_refs, few.is_cut) == (("a", "b"), 3, True)
    assert (n, [(one.ref, one.want_id) for one in page]) == (3, [("b", want), ("c", want)])
    assert world.queries.wants.refs_of("none", 5) == (0, [])
