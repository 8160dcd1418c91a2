"""The graph of instances around one: what it was made of, and what was made of it (rule 4.6)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final, TypedDict

from databuild_dagster.model.errors import NotFound
from databuild_dagster.shapes.lineage import NeighbourShape, neighbour_shapes
from databuild_dagster.store.queries.instances import Instance
from databuild_dagster.store.queries.queries import Queries

#: Instances of one graph.
MAX_NODES: Final = 1_000
#: Edges of one step. A partition can be built from a hundred thousand others.
MAX_EDGES: Final = 5_000


class NodeShape(NeighbourShape):
    """An instance; `level` counts steps from the middle, below zero for what it was made of."""

    level: int


class EdgeShape(TypedDict):
    """One instance was an input of another one."""

    input: str
    output: str


class GraphShape(TypedDict):
    """The instances around one, level by level."""

    uuid: str
    ref: str
    levels: int
    nodes: list[NodeShape]
    edges: list[EdgeShape]
    #: Whether more instances belong to it.
    is_cut: bool
    #: The live partitions that have data of it, which a taint of it with --downstream would reach; 10,001 for more than 10,000.
    n_reached: int


def graph_around(queries: Queries, uuid: str, levels: int) -> GraphShape:
    """The graph with so many levels on both sides. Raises `NotFound`."""
    found = queries.instances_named([uuid])
    if not found:
        raise NotFound(kind="instance", name=uuid)
    (middle,) = found
    graph = _Graph(middle)
    _add_inputs(queries, graph, levels)
    _add_outputs(queries, graph, levels)
    shapes = neighbour_shapes([instance for instance, _ in graph.nodes.values()])
    return {
        "uuid": uuid,
        "ref": middle.ref,
        "levels": levels,
        "nodes": [{**shape, "level": graph.nodes[shape["uuid"]][1]} for shape in shapes],
        "edges": [
            {"input": first, "output": second}
            for first, second in graph.edges
            if first in graph.nodes and second in graph.nodes
        ],
        "is_cut": graph.is_cut,
        "n_reached": queries.live_built_from([middle.ref] if middle.canonical else [], [uuid]),
    }


class _Graph:
    def __init__(self, middle: Instance) -> None:
        #: By uuid, with the level.
        self.nodes: dict[str, tuple[Instance, int]] = {middle.uuid: (middle, 0)}
        self.edges: dict[tuple[str, str], None] = {}
        self.is_cut = False

    def uuids_at(self, level: int) -> list[str]:
        return [uuid for uuid, (_, of_node) in self.nodes.items() if of_node == level]

    def connect(self, edges: Sequence[tuple[str, str]]) -> Sequence[tuple[str, str]]:
        """The edges that are added: at most `MAX_EDGES`."""
        self.is_cut = self.is_cut or len(edges) > MAX_EDGES
        self.edges.update(dict.fromkeys(edges[:MAX_EDGES]))
        return edges[:MAX_EDGES]

    def room_for(self, uuids: Iterable[str]) -> list[str]:
        new = [uuid for uuid in dict.fromkeys(uuids) if uuid not in self.nodes]
        room = MAX_NODES - len(self.nodes)
        self.is_cut = self.is_cut or len(new) > room
        return new[:room]

    def add(self, instances: Sequence[Instance], level: int) -> None:
        for instance in instances:
            self.nodes.setdefault(instance.uuid, (instance, level))


def _add_inputs(queries: Queries, graph: _Graph, levels: int) -> None:
    for level in range(0, -levels, -1):
        edges = graph.connect(queries.inputs_of(graph.uuids_at(level), MAX_EDGES + 1))
        graph.add(queries.instances_named(graph.room_for(uuid for uuid, _ in edges)), level - 1)


def _add_outputs(queries: Queries, graph: _Graph, levels: int) -> None:
    for level in range(levels):
        edges = graph.connect(queries.uses_of(graph.uuids_at(level), MAX_EDGES + 1))
        graph.add(queries.instances_named(graph.room_for(uuid for _, uuid in edges)), level + 1)
