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
    #: The live partitions that have data of it, which a taint of it with --downstream would reach.
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
        "n_reached": queries.n_live_built_from([middle.ref] if middle.canonical else [], [uuid]),
    }


class _Graph:
    def __init__(self, middle: Instance) -> None:
        #: By uuid, with the level.
        self.nodes: dict[str, tuple[Instance, int]] = {middle.uuid: (middle, 0)}
        self.edges: dict[tuple[str, str], None] = {}
        self.is_cut = False

    def at(self, level: int) -> list[Instance]:
        return [instance for instance, of_node in self.nodes.values() if of_node == level]

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
        edges = [(uuid, instance.uuid) for instance in graph.at(level) for uuid in instance.inputs]
        graph.edges.update(dict.fromkeys(edges))
        graph.add(queries.instances_named(graph.room_for(uuid for uuid, _ in edges)), level - 1)


def _add_outputs(queries: Queries, graph: _Graph, levels: int) -> None:
    for level in range(levels):
        edges = queries.uses_of([instance.uuid for instance in graph.at(level)], MAX_NODES + 1)
        graph.edges.update(dict.fromkeys(edges))
        graph.add(queries.instances_named(graph.room_for(uuid for _, uuid in edges)), level + 1)
