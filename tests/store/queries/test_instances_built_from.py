"""How much was built from an instance: in full for commands, and up to a bound for pages (rule 4.6)."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from databuild_dagster.store.queries import instances
from tests.support.world import COMPLETE, World


@pytest.fixture
def used(world: World) -> str:
    """An instance of `a` from which `b`, `c` and, by `b`, `d` were built; `c` twice."""
    world.live("a")
    uuid = world.uuid("a")
    world.succeed("b", inputs=["a"])
    world.succeed("c", inputs=["a"])
    world.taint("c", reason="again")
    world.succeed("c", inputs=["a"])
    world.succeed("d", inputs=["b"])
    return uuid


def test_the_live_refs_built_from_a_ref_are_counted_in_full_or_up_to_a_bound(
    world: World, used: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    in_full = world.queries.instances.n_live_built_from(["a"], [used])
    same = world.queries.instances.live_built_from(["a"], [used])
    monkeypatch.setattr(instances, "MAX_COUNTED", 1)

    assert (in_full, same) == (3, 3)
    assert world.queries.instances.live_built_from(["a"], [used]) == 2


def test_a_walk_that_finds_few_live_refs_goes_on_to_its_end(
    world: World, used: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(instances, "MAX_WALKED", 2)

    assert world.queries.instances.live_built_from(["a"], [used]) == 3


def test_of_many_consumers_the_first_by_ref_are_those_created_first(
    world: World, used: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    all_of_them = [instance.uuid for instance in world.queries.instances.built_from(used, 10)[1]]
    monkeypatch.setattr(instances, "MAX_COUNTED", 1)
    monkeypatch.setattr(instances, "MAX_SORTED", 2)

    n, found = world.queries.instances.built_from(used, 10)

    assert len(all_of_them) == 3
    assert (n, [instance.uuid for instance in found]) == (2, all_of_them[:2])


def test_what_was_built_from_an_earlier_instance_is_found_along_the_chain(world: World, used: str) -> None:
    """Rule 4.6: `databuild build --downstream`"""
    before = world.queries.instances.live_from_earlier(["a"])
    world.taint("a", reason="again")
    while_tainted = world.queries.instances.live_from_earlier(["a"])
    world.succeed("a")
    replaced = world.queries.instances.live_from_earlier(["a"])
    world.taint("b", reason="again")
    world.succeed("b", inputs=["a"])

    assert (before, while_tainted, replaced) == ([], ["b", "c", "d"], ["b", "c", "d"])
    assert world.queries.instances.live_from_earlier(["a"]) == ["c", "d"], "d has the rows of a by the earlier b"


def test_rows_that_were_built_again_equally_end_the_chain(world: World) -> None:
    """Rule 4.8"""
    equal = replace(COMPLETE, content_hash="x:1")
    world.succeed("a", manifest=replace(COMPLETE, content_hash="x:7"))
    world.succeed("b", inputs=["a"], manifest=equal)
    world.succeed("c", inputs=["b"])
    world.taint("a")
    world.succeed("a", manifest=replace(COMPLETE, content_hash="x:8"))
    before = world.queries.instances.live_from_earlier(["a"])
    world.taint("b")
    world.succeed("b", inputs=["a"], manifest=equal)

    after = world.queries.instances.live_from_earlier(["a"])
    world.taint("a")
    again = world.queries.instances.live_from_earlier(["a"])

    assert (before, after) == (["b", "c"], [])
    assert again == ["c", "b"], "c has the rows of the b that was built from the tainted a"


def test_what_was_built_from_equal_rows_is_counted_at_every_level(world: World) -> None:
    """Rules 4.8, 7.3: as many as a downstream taint would reach."""
    equal = replace(COMPLETE, content_hash="x:1")
    world.succeed("a", manifest=replace(COMPLETE, content_hash="x:7"))
    world.succeed("b", inputs=["a"], manifest=equal)
    world.succeed("c", inputs=["b"])
    first = world.uuid("a")
    world.taint("b")
    world.succeed("b", manifest=equal)
    world.taint("a")
    world.succeed("a", manifest=replace(COMPLETE, content_hash="x:7"))

    assert world.queries.instances.n_live_built_from(["a"], []) == 2
    assert world.queries.instances.n_live_built_from([], [first]) == 3, "with a itself"


def test_the_first_instance_with_the_rows_of_each_is_found(world: World) -> None:
    """Rule 4.8"""
    uuids = []
    for _ in range(3):
        uuids.append(world.succeed("a", manifest=replace(COMPLETE, content_hash="x:1")))
        nothing = world.queries.instances.first_with_rows(uuids) if len(uuids) == 1 else {}
        world.taint("a")

    assert (nothing, world.queries.instances.first_with_rows(uuids)) == ({}, dict.fromkeys(uuids[1:], uuids[0]))
