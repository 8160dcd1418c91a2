"""The cycles of refs that wait for each other, in any graph (rule 6.7)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from graphlib import CycleError, TopologicalSorter

from databuild_dagster.model.refs import Ref

#: A ref to the refs that it needs.
Graph = Mapping[Ref, Iterable[Ref]]


def shortest_cycles(needs: Graph) -> dict[Ref, tuple[Ref, ...]]:
    """Each ref that lies on a cycle, with the smallest of its shortest cycles, which begins with its smallest ref.

    Cycles are compared as tuples of text, so the order of the graph does not matter.
    """
    backward = _tangled(needs)
    # The refs that also need a cycle: what is left lies on cycles, or between two of them.
    forward = _tangled(backward)
    backward = _reversed(forward)
    cycles = {ref: _smallest_cycle(ref, forward, backward) for ref in sorted(forward)}
    return {ref: cycle for ref, cycle in cycles.items() if cycle}


def _tangled(needs: Graph) -> dict[Ref, set[Ref]]:
    """The refs that no order puts behind all that they need, reversed: each with the refs that need it."""
    sorter = TopologicalSorter(needs)
    try:
        sorter.prepare()
    except CycleError:
        in_order: set[Ref] = set()
        while ready := sorter.get_ready():
            in_order.update(ready)
            sorter.done(*ready)
        return _reversed({ref: set(needed) - in_order for ref, needed in needs.items() if ref not in in_order})
    return {}


def _reversed(graph: Graph) -> dict[Ref, set[Ref]]:
    found: dict[Ref, set[Ref]] = {}
    for ref, others in graph.items():
        for other in others:
            found.setdefault(other, set()).add(ref)
    return found


def _smallest_cycle(ref: Ref, forward: Graph, backward: Graph) -> tuple[Ref, ...]:
    """Empty if the ref lies on no cycle."""
    to_ref = _distances(ref, backward)
    following = {needed for needed in forward.get(ref, ()) if needed in to_ref}
    if not following:
        return ()
    length = 1 + min(to_ref[needed] for needed in following)
    from_ref = _distances(ref, forward)
    # Every ref whose ways from and to this one add up to the length lies on a shortest cycle, and its smallest ref begins it.
    first = min({ref, *(other for other, steps in to_ref.items() if from_ref.get(other, length) + steps == length)})
    if first == ref:
        second = min(needed for needed in following if to_ref[needed] == length - 1)
        return (ref, *_smallest_way(second, ref, forward, to_ref))
    to_first = _distances(first, backward)
    return (*_smallest_way(first, ref, forward, to_ref), *_smallest_way(ref, first, forward, to_first))


def _distances(start: Ref, graph: Graph) -> dict[Ref, int]:
    """The refs that a way leads to, and its least number of steps."""
    distances, level, steps = {start: 0}, {start}, 0
    while level:
        steps += 1
        level = {other for ref in level for other in graph.get(ref, ())} - distances.keys()
        distances.update(dict.fromkeys(level, steps))
    return distances


def _smallest_way(start: Ref, end: Ref, forward: Graph, to_end: Mapping[Ref, int]) -> list[Ref]:
    """Of the shortest ways the smallest, without its end."""
    way, ref = [], start
    while ref != end:
        way.append(ref)
        ref = min(needed for needed in forward[ref] if to_end.get(needed) == to_end[ref] - 1)
    return way
