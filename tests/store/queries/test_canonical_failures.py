"""What failed by itself and is not repaired, however long ago (rule 6.15)."""

from __future__ import annotations

import pytest

from databuild_dagster.store.queries import canonical
from tests.support.world import World


def test_failures_are_exact_the_last_one_first_until_they_are_repaired(world: World) -> None:
    for ref in ("a", "b", "c"):
        world.fail(ref, error=f"{ref} raised")
    world.taint("b", reason="to be tried again")
    world.live("b")

    n, found = world.queries.failed_first(10)

    assert (n, [ref for ref, _ in found]) == (2, ["c", "a"])
    assert [why for _, why in found] == [world.canonical(ref).reason for ref in ("c", "a")]


def test_a_ref_that_failed_because_of_another_is_counted_behind_it(world: World) -> None:
    world.miss("a", "b")
    world.miss("b", "c")
    world.miss("d", "c")
    world.fail("c")
    world.fail("e")

    assert [ref for ref, _ in world.queries.failed_first(10)[1]] == ["e", "c"]
    assert [world.queries.n_failed_because_of(ref) for ref in ("c", "e", "days@1")] == [3, 0, 0]
    assert world.queries.n_failed_because_of("c") == len(world.queries.failed_upstream_of(["c"]))


def test_counts_of_failures_end_at_the_bound(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(canonical, "MAX_COUNTED", 1)
    for ref in ("a", "b", "d"):
        world.miss(ref, "c")
    for ref in ("c", "e", "left"):
        world.fail(ref)

    n, found = world.queries.failed_first(1)

    assert (n, len(found)) == (2, 1)
    assert world.queries.n_failed_because_of("c") == 2
