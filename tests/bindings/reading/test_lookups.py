"""The lookups by the names of the design: the answer before a request is the answer to it (rules 8.1, 13)."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from databuild_dagster.bindings.reading.lookups import BuildCoordination, coordination_of
from databuild_dagster.model.states import InstanceState
from tests.support.catalog import dataset
from tests.support.world import World

#: How `a` comes into each state, and into its backoff.
STATES: dict[str, Callable[[World], object]] = {
    "missing": lambda world: None,
    "Building": lambda world: world.start("a"),
    "Live": lambda world: world.succeed("a"),
    "Tainted": lambda world: (world.succeed("a"), world.taint("a")),
    "Failed": lambda world: world.fail("a"),
    "UpstreamBuilding": lambda world: (world.want("a"), world.miss("a", "b")),
    "UpstreamFailed": lambda world: (world.want("a"), world.miss("a", "b"), world.fail("b")),
    "UpForRetry": lambda world: (world.start("a"), world.cancel("a", keep_wants=True)),
    "UpForRetry, before its next attempt": lambda world: (world.want("a"), world.fail("a", kind="transient")),
}


def test_the_states_of_this_file_are_all_there_are() -> None:
    assert {name.partition(",")[0] for name in STATES} == {"missing", *(state.value for state in InstanceState)}


@pytest.mark.parametrize("is_paused", [False, True])
@pytest.mark.parametrize("state", STATES)
def test_check_build_coordination_gives_the_answer_of_a_claim_in_every_state(state: str, is_paused: bool) -> None:
    """Rules 6.13, 8.1"""
    world = World([dataset("a", "b"), dataset("b")])
    STATES[state](world)
    if is_paused:
        world.pause("a")
    assert (world.state("a") or "missing") == state.partition(",")[0]

    looked = coordination_of(world.queries, ["a"], world.engine.now())
    claim = world.claim("a", by_person=False).claim

    assert claim is not None
    assert looked == BuildCoordination(tuple(claim.build), claim.join, claim.reuse, claim.refused)
    world.store.close()


def test_a_schedule_waits_for_the_next_attempt_and_a_person_does_not() -> None:
    """Rules 6.8, 8.1"""
    world = World([dataset("a", "b"), dataset("b")])
    STATES["UpForRetry, before its next attempt"](world)

    assert list(coordination_of(world.queries, ["a"], world.engine.now()).join) == ["a"]
    assert coordination_of(world.queries, ["a"], world.engine.now() + 5.0).build == ("a",)
    claim = world.claim("a", by_person=True).claim
    assert claim is not None
    assert list(claim.build) == ["a"]
    world.store.close()
