"""What failed by itself and is not repaired, by cause, however long ago (rule 6.15)."""

from __future__ import annotations

from typing import Any

import pytest

from databuild_dagster.model.surroundings import Surrounding
from databuild_dagster.store.queries import canonical
from tests.support.catalog import dataset
from tests.support.world import World


def test_failures_are_exact_the_last_one_first_until_they_are_repaired(world: World) -> None:
    for ref in ("a", "b", "c"):
        world.fail(ref, error=f"{ref} raised")
    world.taint("b", reason="to be tried again")
    world.live("b")

    n_causes, groups = world.queries.canonical.failed_alike(10)

    assert (n_causes, world.queries.canonical.n_failed_first()) == (2, 2)
    assert [(group.refs, group.why) for group in groups] == [
        (["c"], world.canonical("c").reason),
        (["a"], world.canonical("a").reason),
    ]


def test_a_ref_that_failed_because_of_others_is_counted_once_behind_their_cause(world: World) -> None:
    world.miss("a", "b")
    world.miss("b", "c")
    world.miss("d", "c")
    world.fail("c")
    world.fail("e")

    groups = world.queries.canonical.failed_alike(10)[1]

    assert [(group.refs, group.n_waiting) for group in groups] == [(["e"], 0), (["c"], 3)]


def test_counts_of_failures_end_at_the_bound(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(canonical, "MAX_COUNTED", 1)
    for ref in ("a", "b", "d"):
        world.miss(ref, "c")
    for ref in ("c", "e", "left"):
        world.fail(ref)

    n_causes, groups = world.queries.canonical.failed_alike(3)

    assert (n_causes, world.queries.canonical.n_failed_first()) == (3, 2)
    assert [(group.n, group.n_waiting) for group in groups] == [(1, 0), (1, 0), (1, 2)]


@pytest.fixture
def failed(make_world: Any) -> World:
    """Four hours failed by one cause, of which each tells its key and a path, and one by another, and so did `a`."""
    world: World = make_world(dataset("a"), dataset("b"), dataset("hours", keys=list("12345")))
    for hour in "1234":
        world.fail(f"hours@{hour}", error=f"no file /in/{hour}{'x' * int(hour)}.csv of {hour}")
    world.fail("a", error="no file /in/a.csv of 1")
    world.fail("hours@5", error="bug")
    return world


def test_failures_of_one_dataset_by_one_cause_are_one_group(failed: World) -> None:
    n_causes, groups = failed.queries.canonical.failed_alike(10)

    assert n_causes == 3
    assert [(group.refs, group.n) for group in groups] == [
        (["hours@5"], 1),
        (["a"], 1),
        (["hours@4", "hours@3", "hours@2"], 4),
    ]
    assert groups[2].why is not None
    assert "/in/4xxxx.csv" in groups[2].why
    assert [group.refs for group in failed.queries.canonical.failed_alike(2)[1]] == [["hours@5"], ["a"]]


def test_refs_that_failed_as_others_did_are_all_of_their_groups(failed: World) -> None:
    assert failed.queries.canonical.failed_as(["hours@2"], 9) == ["hours@4", "hours@3", "hours@2", "hours@1"]
    assert failed.queries.canonical.failed_as(["hours@5", "a"], 9) == ["hours@5", "a"]
    assert failed.queries.canonical.failed_as(["hours@2"], 2) == ["hours@4", "hours@3"]
    assert failed.queries.canonical.failed_as(["b"], 9) == []


def test_only_wanted_refs_whose_build_raised_are_retried(world: World) -> None:
    for ref in ("a", "b"):
        world.want(ref)
        world.fail(ref, error="no session 7" if ref == "a" else "no session 8", owner=Surrounding.SPARK)
    world.miss("c", "d")

    n_causes, groups = world.queries.canonical.retried_alike(10)

    assert (n_causes, [group.refs for group in groups]) == (2, [["b"], ["a"]])
    assert world.queries.canonical.failed_alike(10) == (0, [])
