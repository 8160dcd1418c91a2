"""What failed by itself and is not repaired, however long ago (rule 6.15)."""

from __future__ import annotations

from typing import Any

import pytest

from databuild_dagster.store.queries import canonical
from tests.support.catalog import dataset
from tests.support.world import World


def test_failures_are_exact_the_last_one_first_until_they_are_repaired(world: World) -> None:
    for ref in ("a", "b", "c"):
        world.fail(ref, error=f"{ref} raised")
    world.taint("b", reason="to be tried again")
    world.live("b")

    n, found = world.queries.canonical.failed_first(10)

    assert (n, [ref for ref, _ in found]) == (2, ["c", "a"])
    assert [why for _, why in found] == [world.canonical(ref).reason for ref in ("c", "a")]


def test_a_ref_that_failed_because_of_another_is_counted_behind_it(world: World) -> None:
    world.miss("a", "b")
    world.miss("b", "c")
    world.miss("d", "c")
    world.fail("c")
    world.fail("e")

    assert [ref for ref, _ in world.queries.canonical.failed_first(10)[1]] == ["e", "c"]
    assert [world.queries.canonical.n_failed_because_of(ref) for ref in ("c", "e", "days@1")] == [3, 0, 0]
    assert world.queries.canonical.n_failed_because_of("c") == len(world.queries.canonical.failed_upstream_of(["c"]))


def test_counts_of_failures_end_at_the_bound(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(canonical, "MAX_COUNTED", 1)
    for ref in ("a", "b", "d"):
        world.miss(ref, "c")
    for ref in ("c", "e", "left"):
        world.fail(ref)

    n, found = world.queries.canonical.failed_first(1)

    assert (n, len(found)) == (2, 1)
    assert world.queries.canonical.n_failed_because_of("c") == 2


@pytest.fixture
def failed(make_world: Any) -> World:
    """Four hours failed for one reason and one for another, and so did `a`."""
    world: World = make_world(dataset("a"), dataset("b"), dataset("hours", keys=list("12345")))
    for hour in "1234":
        world.fail(f"hours@{hour}", error="late")
    world.fail("a", error="late")
    world.fail("hours@5", error="bug")
    return world


def test_failures_of_one_dataset_for_one_reason_are_one_group(failed: World) -> None:
    groups = failed.queries.canonical.failed_alike(10)

    assert [(group.refs, group.n) for group in groups] == [
        (["hours@5"], 1),
        (["a"], 1),
        (["hours@4", "hours@3", "hours@2"], 4),
    ]
    assert [group.refs for group in failed.queries.canonical.failed_alike(2)] == [["hours@5"], ["a"]]


def test_refs_that_failed_as_others_did_are_all_of_their_groups(failed: World) -> None:
    assert failed.queries.canonical.failed_as(["hours@2"]) == ["hours@4", "hours@3", "hours@2", "hours@1"]
    assert failed.queries.canonical.failed_as(["hours@5", "a"]) == ["hours@5", "a"]
    assert failed.queries.canonical.failed_as(["b"]) == []
