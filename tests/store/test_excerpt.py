"""An excerpt has the rows that the refs reach, and takes events like the store itself (rule 8.10)."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from databuild_dagster.model import commands as c
from databuild_dagster.store.excerpt import Surroundings
from databuild_dagster.store.format import PREFIX
from databuild_dagster.store.store import Store
from tests.support import fixtures  # noqa: F401  (the profiles)
from tests.support.catalog import dataset
from tests.support.walk import Walk
from tests.support.world import World

#: The tables whose rows of now an excerpt of all refs has: not what ended, and not the history.
WHOLE = ("datasets", "refs", "arcs")


def rows(store: Store, table: str) -> set[tuple[Any, ...]]:
    with store.reading() as connection:
        return {tuple(row) for row in connection.execute(f"SELECT * FROM {PREFIX}{table}")}


def excerpt_of(world: World, reached: list[str], around: tuple[str, ...] = ()) -> Store:
    with world.store.reading() as connection:
        return Surroundings(connection, world.engine.now()).copy(reached, around, ())


@pytest.mark.databases("sqlite")
@settings(deadline=None, max_examples=20)
@given(seed=st.integers(0, 1_000_000))
def test_an_excerpt_of_all_refs_has_the_rows_of_the_store(seed: int) -> None:
    world = World([dataset("a"), dataset("b", "a"), dataset("d", subscribe=["a"])])
    world.want("a", "b", "d")
    Walk(world, seed).take(40)

    excerpt = excerpt_of(world, ["a", "b", "d"])

    for table in WHOLE:
        assert rows(excerpt, table) == rows(world.store, table), table
    for table in ("instances", "job_runs", "launches", "wants", "missing", "taints", "events"):
        assert rows(excerpt, table) <= rows(world.store, table), table
    holds = {row for row in rows(world.store, "holds") if row[1] == 1}
    assert holds <= rows(excerpt, "holds")
    assert rows(excerpt, "pauses") == {row for row in rows(world.store, "pauses") if row[-1] is None}
    excerpt.close()
    world.close()


def test_the_next_event_of_an_excerpt_has_the_next_number(world):
    world.handle(c.RegisterDatasets(location="here", datasets=(dataset("a"), dataset("b"))))
    world.live("a")
    excerpt = excerpt_of(world, ["a"])

    with excerpt.reading() as connection:
        ((seq,),) = connection.execute(f"SELECT max(seq) FROM {PREFIX}events")

    assert seq == world.seq
    assert len(rows(excerpt, "events")) == 1
    excerpt.close()


def test_refs_around_the_reached_ones_have_a_state_and_no_wants(make_world):
    world = make_world(dataset("a"), dataset("b", "a"))
    world.live("a")
    world.want("b")

    excerpt = excerpt_of(world, ["b"], ("a",))

    assert {row[1] for row in rows(excerpt, "refs")} == {"a", "b"}
    assert len(rows(excerpt, "wants")) == 1
    excerpt.close()


@pytest.mark.parametrize(
    ("story", "ref", "found"),
    [
        (lambda world: world.miss("b", "a"), "a", {"b"}),
        (lambda world: world.miss("b", "a"), "b", {"a"}),
        (lambda world: world.want("a", "b"), "a", {"a", "b"}),
        (lambda world: world.start("left", "right", together=True), "left", {"left", "right"}),
        (lambda world: world.live("a", "b"), "a", set()),
    ],
)
def test_a_ref_is_next_to_those_that_react_to_it(make_world, story, ref, found):
    """Waiting, missed, of the same want, of the same open job run; not live for a want that has ended."""
    world = make_world(dataset("a"), dataset("b"), dataset("left", job="both"), dataset("right", job="both"))
    story(world)

    with world.store.reading() as connection:
        next_to = Surroundings(connection, world.engine.now()).next_to([ref])

    assert next_to == found
