"""Which refs lie on a cycle, and which cycle is named (rule 6.7)."""

from __future__ import annotations

from itertools import permutations

from hypothesis import example, given
from hypothesis import strategies as st

from databuild_dagster.model.decide.misses import shortest_cycles

NAMES = "abcde"
graphs = st.dictionaries(st.sampled_from(NAMES), st.frozensets(st.sampled_from(NAMES), max_size=4))


def every_cycle(graph):
    """Each simple cycle, beginning with its smallest ref, by trying all orders."""
    for length in range(1, len(NAMES) + 1):
        for order in permutations(NAMES, length):
            following = (*order[1:], order[0])
            if order[0] == min(order) and all(b in graph.get(a, ()) for a, b in zip(order, following, strict=True)):
                yield order


@given(graphs)
@example({"a": {"b", "c"}, "b": {"a"}, "c": {"a"}})
@example({"a": {"d"}, "b": {"d", "e"}, "d": {"b", "a"}, "e": {"b"}})
def test_each_ref_on_a_cycle_has_the_smallest_of_its_shortest_cycles(graph):
    """Rule 6.7"""
    cycles = list(every_cycle(graph))

    found = shortest_cycles(graph)

    assert found == {
        ref: min((cycle for cycle in cycles if ref in cycle), key=lambda cycle: (len(cycle), cycle))
        for ref in {ref for cycle in cycles for ref in cycle}
    }


def test_a_long_chain_that_ends_in_a_cycle_is_not_on_it():
    """Rule 6.7: only the refs of the cycle fail; those that need it fail upstream."""
    chain = {f"r{n:05}": (f"r{n + 1:05}",) for n in range(20_000)}

    found = shortest_cycles({**chain, "r20000": ("r20001",), "r20001": ("r20000", "r20002")})

    assert found == dict.fromkeys(("r20000", "r20001"), ("r20000", "r20001"))
