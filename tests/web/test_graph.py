"""The graph of instances at an earlier event is the graph that a fold of the log up to there has (rules 3.2, 4.6)."""

from __future__ import annotations

import random
from collections.abc import Iterator
from itertools import pairwise

import pytest
from msgspec.structs import replace

from databuild_dagster.store.queries.queries import Queries
from databuild_dagster.store.rebuild import as_it_was
from databuild_dagster.web import graph
from databuild_dagster.web.graph import Graph, NotMadeYet, graph_around
from tests.support.catalog import dataset
from tests.support.walk import Walk
from tests.support.world import World

NAMES = "abcde"


@pytest.fixture
def world() -> Iterator[World]:
    world = World([dataset(name) for name in NAMES])
    yield world
    world.close()


def in_order(found: Graph) -> Graph:
    """The database gives edges, and so the instances of a level, in no order."""
    edges = sorted(found.edges, key=lambda edge: (edge.input, edge.output))
    return replace(found, nodes=sorted(found.nodes, key=lambda node: node.uuid), edges=edges)


def uuids_of(queries: Queries) -> list[str]:
    return [instance.uuid for name in NAMES for instance in queries.instances.history(name)]


@pytest.mark.parametrize("seed", range(5))
def test_the_graph_of_an_earlier_event_is_that_of_a_fold_up_to_there(world: World, seed: int) -> None:
    """Of every instance, after builds, taints, reverts, removals, compactions and arrivals in any order."""
    world.live("a")
    for before, after in pairwise(NAMES):
        world.succeed(after, inputs=[before])
    begun = world.seq
    Walk(world, seed).take(150)
    seqs = [begun, *random.Random(seed).sample(range(1, world.seq + 1), 9)]

    n_edges = n_replaced = n_unlike_now = 0
    for seq in seqs:
        with as_it_was(world.store, seq) as store:
            folded = Queries(store)
            for uuid in uuids_of(folded):
                then = in_order(graph_around(world.queries, uuid, 2, seq))
                assert then == in_order(graph_around(folded, uuid, 2))
                n_edges += len(then.edges)
                n_replaced += sum(not node.canonical for node in then.nodes)
                n_unlike_now += then != in_order(graph_around(world.queries, uuid, 2))

    assert min(n_edges, n_replaced, n_unlike_now) > 0


def test_an_instance_is_refused_before_it_was_made(world: World) -> None:
    world.live("a")
    (instance,) = world.queries.instances.history("a")

    with pytest.raises(NotMadeYet, match=f"as of seq {instance.seq - 1}: event {instance.seq} made it"):
        graph_around(world.queries, instance.uuid, 2, instance.seq - 1)


def test_what_was_built_later_is_not_in_the_graph_of_then(world: World) -> None:
    world.live("a")
    before = world.seq
    world.start("b")
    building = world.seq
    world.succeed("b", inputs=["a"])
    first = world.uuid("a")

    graphs = [graph_around(world.queries, first, 1, seq) for seq in (before, building, world.seq)]

    assert [[node.ref for node in found.nodes] for found in graphs] == [["a"], ["a"], ["a", "b"]]
    assert [found.n_reached for found in graphs] == [0, 0, 1]


def test_a_replaced_instance_was_canonical_once(world: World) -> None:
    world.live("a")
    first = world.uuid("a")
    was_canonical = world.seq
    world.taint("a")
    was_tainted = world.seq
    world.live("a")

    nodes = [graph_around(world.queries, first, 1, seq).nodes[0] for seq in (was_canonical, was_tainted, world.seq)]

    assert [(node.state, node.canonical) for node in nodes] == [
        ("Live", True),
        ("Tainted", True),
        ("Tainted", False),
    ]


@pytest.mark.parametrize(("bound", "most"), [("MAX_EDGES", 1), ("MAX_NODES", 2)])
def test_a_graph_that_is_too_large_says_that_it_is_cut(
    world: World, monkeypatch: pytest.MonkeyPatch, bound: str, most: int
) -> None:
    world.live("a", "b")
    world.succeed("c", inputs=["a", "b"])
    world.succeed("d", inputs=["a"])

    def sizes() -> list[tuple[int, int, bool]]:
        """Of the graph with two inputs, and of the graph with two outputs."""
        graphs = [graph_around(world.queries, world.uuid(ref), 1) for ref in ("c", "a")]
        return [(len(found.nodes), len(found.edges), found.is_cut) for found in graphs]

    whole = sizes()
    monkeypatch.setattr(graph, bound, most)

    assert (whole, sizes()) == ([(3, 2, False)] * 2, [(2, 1, True)] * 2)
