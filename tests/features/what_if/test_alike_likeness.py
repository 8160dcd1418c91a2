"""An answer by one ref of each kind is the answer of a simulation of every ref (rule 8.10)."""

from __future__ import annotations

import random
import re
from contextlib import closing

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import astuple, replace

from databuild_dagster.features.what_if import alike
from databuild_dagster.features.what_if.alike import Likeness
from databuild_dagster.features.what_if.answers import Question, WhatIf
from databuild_dagster.features.what_if.questions import if_tainted
from databuild_dagster.features.what_if.reaching import Reaching
from databuild_dagster.model.errors import NotFound, Refused
from databuild_dagster.model.refs import Ref
from databuild_dagster.store.excerpt import Surroundings
from tests.features.what_if.suppositions import ask
from tests.support import fixtures  # noqa: F401  (the profiles)
from tests.support.catalog import dataset
from tests.support.walk import STEPS, Walk
from tests.support.world import World

DAYS = [str(number) for number in range(6)]
#: Days that are built before the question; the others are new.
BUILT = DAYS[:4]
#: Seconds of each build, and times to live of wants: never, for longer than any chain, and for less.
SECONDS = 60
TTLS = (None, 100_000, 90)


def a_world(seed: int, n_steps: int, *, are_alike: bool) -> World:
    """Days of which each has the same life, but for a few steps; else each with a want of its own time to live."""
    world = World(
        [
            dataset("raw", keys=DAYS),
            dataset("daily", "raw", keys=DAYS, most=2),
            dataset("clean", "daily", keys=DAYS),
            dataset("both", "raw", "clean", keys=DAYS),
            dataset("total", ("clean", "all")),
        ]
    )
    rng = random.Random(seed)
    for asset, needs in (("raw", ()), ("daily", ("raw",)), ("clean", ("daily",)), ("both", ("raw", "clean"))):
        for day in BUILT:
            if not are_alike:
                world.clock.turn(1)
            world.want(f"{asset}@{day}", ttl=100_000 if are_alike else rng.choice(TTLS))
        run = {day: world.start(f"{asset}@{day}") for day in BUILT}
        world.clock.turn(SECONDS)
        for day in run:
            world.succeed(f"{asset}@{day}", inputs=[f"{need}@{day}" for need in needs])
    world.want("total")
    _take(world, rng, n_steps)
    return world


def _take(world: World, rng: random.Random, n_steps: int) -> None:
    walk = Walk(world, rng.randint(0, 1_000_000))
    for _ in range(n_steps):
        try:
            rng.choice([step for step in STEPS if step is not Walk.pass_time])(walk)
        except (Refused, NotFound):
            walk.n_refused += 1


def answer(world: World, question: Question, refs: list[Ref], *, downstream: bool) -> WhatIf | str:
    try:
        return ask(world, question, refs, downstream=downstream)
    except Refused as refused:
        return refused.message


def without_ids(found: WhatIf | str) -> object:
    """All of an answer but the ids that a simulation makes."""
    if isinstance(found, str):
        return found
    return {
        "changes": sorted(
            astuple(replace(change, reason=re.sub(r"job run \S+", "job run", change.reason)))
            for change in found.changes
        ),
        "launches": [launch._replace(refs=tuple(sorted(launch.refs))) for launch in found.launches],
        "reached": found.reached,
        "wants": (found.wants_reopened, found.wants_open),
        "notes": found.notes,
    }


def ref_by_ref(world: World, question: Question, refs: list[Ref], *, downstream: bool) -> WhatIf | str:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(alike, "MAX_ROUNDS", 0)
        return answer(world, question, refs, downstream=downstream)


@settings(deadline=None, max_examples=20)
@given(
    seed=st.integers(0, 1_000_000),
    n_steps=st.integers(0, 4),
    are_alike=st.booleans(),
    question=st.sampled_from(Question),
    asset=st.sampled_from(["raw", "daily", "clean"]),
    days=st.lists(st.sampled_from(DAYS), min_size=1, max_size=6, unique=True),
    downstream=st.booleans(),
)
def test_the_answer_by_one_of_each_kind_is_the_answer_ref_by_ref(
    seed: int, n_steps: int, are_alike: bool, question: Question, asset: str, days: list[str], downstream: bool
) -> None:
    world = a_world(seed, n_steps, are_alike=are_alike)
    refs = [Ref(f"{asset}@{day}") for day in days]

    found = answer(world, question, refs, downstream=downstream)

    assert without_ids(found) == without_ids(ref_by_ref(world, question, refs, downstream=downstream))
    world.close()


def likeness_of(world: World, refs: list[Ref], surroundings: Surroundings) -> Likeness:
    searching = Reaching(world.queries.datasets.all().values(), world.catalog, surroundings)
    reached = searching.search(refs, built_from=True)
    return Likeness(searching, surroundings, reached, frozenset(refs), frozenset())


def test_days_with_the_same_life_are_simulated_by_one_of_them():
    world = a_world(0, 0, are_alike=True)
    refs = [Ref(f"raw@{day}") for day in BUILT]

    with world.store.reading() as connection:
        found = likeness_of(world, refs, Surroundings(connection, world.clock.now))
        alike_days = found.alike(world.clock.now)
        excerpt = found.excerpt(alike_days)

    assert alike_days.simulated(found.reached.refs) == ("raw@0", "daily@0", "both@0", "clean@0")
    with closing(excerpt), excerpt.reading() as connection:
        assert connection.execute("SELECT count(*) FROM databuild_refs").fetchone() == (4,)
    assert [len(launch.refs) for launch in if_tainted(world.engine, refs, downstream=True).launches] == [4, 4, 4, 4]
    world.close()


def test_days_whose_wants_end_at_other_times_are_alike_until_one_ends(make_world):
    world = make_world(dataset("raw", keys=DAYS))
    for day, ttl in (("0", 100), ("1", 200), ("2", 200)):
        world.want(f"raw@{day}", ttl=ttl)
        world.live(f"raw@{day}")
    now = world.clock.now
    refs = [Ref(f"raw@{day}") for day in "012"]

    with world.store.reading() as connection:
        found = likeness_of(world, refs, Surroundings(connection, now))
        at_first, later = found.alike(now), found.alike(now + 150)

    assert at_first.other == {"raw@1": "raw@0", "raw@2": "raw@0"}
    assert later.other == {"raw@2": "raw@1"}
    assert found.holds(at_first, now, now + 99, set())
    assert not found.holds(at_first, now, now + 100, set())
    assert not found.holds(at_first, now, now, {Ref("raw@0")})
    assert found.holds(later, now + 150, now + 300, {Ref("raw@1")})
