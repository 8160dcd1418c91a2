"""The graph of instances around an instance: its inputs and its consumers, now or at an earlier event (rule 4.6)."""

from collections.abc import Iterable, Sequence
from typing import Final, Protocol

import msgspec

from databuild_dagster.model.errors import NotFound, Refused
from databuild_dagster.model.records import Time, extended
from databuild_dagster.model.refs import Ref
from databuild_dagster.model.states import InstanceState
from databuild_dagster.store.queries.instances import Instance, InstanceThen
from databuild_dagster.store.queries.queries import Queries

#: Instances on each side.
MAX_NEIGHBOURS: Final = 500


#: An instance, now or when an earlier event was the last one.
Neighbour = Instance | InstanceThen


class ShownNeighbour(msgspec.Struct, frozen=True):
    """An input or a consumer of an instance; `canonical` if readers of its ref see it."""

    uuid: str
    ref: Ref
    state: InstanceState
    canonical: bool
    live_since: Time | None


class Lineage(msgspec.Struct, frozen=True):
    """The inputs and consumers of an instance.

    If there are more than `MAX_NEIGHBOURS`, the first by ref; of thousands of consumers the oldest.
    """

    uuid: str
    ref: Ref
    n_inputs: int
    inputs: list[ShownNeighbour]
    #: 10,001 for more than 10,000.
    n_consumers: int
    consumers: list[ShownNeighbour]


def lineage_of(queries: Queries, uuid: str) -> Lineage:
    """The neighbours of an instance. Raises `NotFound`."""
    instance = queries.instances.get(uuid, MAX_NEIGHBOURS)
    if instance is None:
        raise NotFound(kind="instance", name=uuid)
    n_consumers, consumers = queries.instances.built_from(uuid, MAX_NEIGHBOURS)
    n_inputs, inputs = queries.instances.n_inputs_of([uuid]).get(uuid, 0), queries.instances.named(instance.inputs)
    return Lineage(uuid, instance.ref, n_inputs, neighbours(inputs), n_consumers, neighbours(consumers))


def neighbours(instances: Sequence[Neighbour]) -> list[ShownNeighbour]:
    """Instances in their order."""
    return [extended(ShownNeighbour, instance, live_since=instance.live_at) for instance in instances]


#: Levels on each side of a graph, and instances of all of them.
MAX_LEVELS: Final = 50
MAX_NODES: Final = 1_000
#: Edges of a step. A partition can be built from a hundred thousand partitions.
MAX_EDGES: Final = 5_000


class NotMadeYet(Refused):
    """Instance {uuid} of {ref} did not exist as of seq {seq}: event {made_seq} made it."""

    hint = "Give a seq from {made_seq} on, or another instance."


class Node(ShownNeighbour, frozen=True):
    """An instance; `level` counts steps from the middle, below zero for what it was made of."""

    level: int


class Edge(msgspec.Struct, frozen=True):
    """The instance `input` was an input of the instance `output`."""

    input: str
    output: str


class Graph(msgspec.Struct, frozen=True):
    """The instances around an instance, level by level."""

    uuid: str
    ref: str
    #: The event that made it.
    made_seq: int
    levels: int
    nodes: list[Node]
    edges: list[Edge]
    #: Whether more instances belong to it.
    is_cut: bool
    #: The live partitions that have data of it, which a taint of it with --downstream would reach; 10,001 for more than 10,000.
    n_reached: int


class _Look(Protocol):
    """The instances and their edges at an event."""

    def instances(self, uuids: Iterable[str]) -> Sequence[Neighbour]: ...
    def inputs(self, uuids: Iterable[str]) -> Sequence[tuple[str, str]]: ...
    def uses(self, uuids: Iterable[str]) -> Sequence[tuple[str, str]]: ...
    def n_reached(self, middle: Neighbour) -> int: ...


def graph_around(queries: Queries, uuid: str, levels: int, seq: int | None = None) -> Graph:
    """The graph with so many levels on both sides, now or when `seq` was the last event. Raises `NotFound`, `NotMadeYet`."""
    made = queries.instances.named([uuid])
    if not made:
        raise NotFound(kind="instance", name=uuid)
    made_seq = made[0].seq
    if seq is not None and seq < made_seq:
        raise NotMadeYet(uuid=uuid, ref=made[0].ref, seq=seq, made_seq=made_seq)
    look: _Look = _Now(queries) if seq is None else _Then(queries, seq)
    (middle,) = look.instances([uuid])
    graph = _Graph(middle)
    _add_inputs(look, graph, levels)
    _add_outputs(look, graph, levels)
    nodes = [
        extended(Node, instance, live_since=instance.live_at, level=level) for instance, level in graph.nodes.values()
    ]
    edges = [Edge(*edge) for edge in graph.edges if graph.nodes.keys() >= set(edge)]
    return Graph(uuid, middle.ref, made_seq, levels, nodes, edges, graph.is_cut, look.n_reached(middle))


class _Now:
    def __init__(self, queries: Queries) -> None:
        self._queries = queries

    def instances(self, uuids: Iterable[str]) -> Sequence[Neighbour]:
        return self._queries.instances.named(uuids)

    def inputs(self, uuids: Iterable[str]) -> Sequence[tuple[str, str]]:
        return self._queries.instances.inputs_of(uuids, MAX_EDGES + 1)

    def uses(self, uuids: Iterable[str]) -> Sequence[tuple[str, str]]:
        return self._queries.instances.uses_of(uuids, MAX_EDGES + 1)

    def n_reached(self, middle: Neighbour) -> int:
        return self._queries.instances.live_built_from([middle.ref] if middle.canonical else [], [middle.uuid])


class _Then:
    def __init__(self, queries: Queries, seq: int) -> None:
        self._queries = queries
        self._seq = seq

    def instances(self, uuids: Iterable[str]) -> Sequence[Neighbour]:
        return self._queries.instances.at(uuids, self._seq)

    def inputs(self, uuids: Iterable[str]) -> Sequence[tuple[str, str]]:
        return self._queries.instances.inputs_at(uuids, MAX_EDGES + 1, self._seq)

    def uses(self, uuids: Iterable[str]) -> Sequence[tuple[str, str]]:
        return self._queries.instances.uses_at(uuids, MAX_EDGES + 1, self._seq)

    def n_reached(self, middle: Neighbour) -> int:
        return self._queries.instances.n_live_built_from_at(middle.uuid, self._seq)


class _Graph:
    def __init__(self, middle: Neighbour) -> None:
        #: By uuid, with the level.
        self.nodes: dict[str, tuple[Neighbour, int]] = {middle.uuid: (middle, 0)}
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

    def add(self, instances: Sequence[Neighbour], level: int) -> None:
        for instance in instances:
            self.nodes.setdefault(instance.uuid, (instance, level))


def _add_inputs(look: _Look, graph: _Graph, levels: int) -> None:
    for level in range(0, -levels, -1):
        edges = graph.connect(look.inputs(graph.uuids_at(level)))
        graph.add(look.instances(graph.room_for(uuid for uuid, _ in edges)), level - 1)


def _add_outputs(look: _Look, graph: _Graph, levels: int) -> None:
    for level in range(levels):
        edges = graph.connect(look.uses(graph.uuids_at(level)))
        graph.add(look.instances(graph.room_for(uuid for _, uuid in edges)), level + 1)
