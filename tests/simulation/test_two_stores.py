"""Storms over a base and its environments: what rules 16 say holds after each commit, and when they are over.

`make simulate SEEDS=1000 ARGS=--two-stores` has more of the same.
"""

from __future__ import annotations

import time
from dataclasses import replace

import pytest

from tests.simulation.processes import Trouble
from tests.simulation.two_stores import Deed, Story, World, described, place, shrunk, simulate, story_of
from tests.support.clock import NOON

pytestmark = [pytest.mark.long("hundreds of storms take their time"), pytest.mark.timeout(300)]

#: Stops early on a slow machine, or on one that is busy with other things, so that CI's time is bounded; the first ones always run.
MOST_SEEDS, LEAST_SEEDS, MOST_SECONDS, MOST_OF_PROCESSOR = 300, 25, 60.0, 20.0
#: Both environments build the same refs, then promote them at the same time.
ONCE = (("create", 1.0), ("build", 20.0), ("promote-x", 300.0))


def test_two_stores_agree_in_any_storm() -> None:
    """Rules 16.1 to 16.12."""
    until, processor_until = time.monotonic() + MOST_SECONDS, time.process_time() + MOST_OF_PROCESSOR
    n_seeds = n_incidents = 0
    for seed in range(MOST_SEEDS):
        if n_seeds >= LEAST_SEEDS and (time.monotonic() > until or time.process_time() > processor_until):
            break
        result = simulate(story_of(seed))
        if result.failure is not None:
            pytest.fail(described(shrunk(result.failure)), pytrace=False)
        n_seeds, n_incidents = n_seeds + 1, n_incidents + result.n_incidents

    print(f"{n_seeds} seeds, {n_incidents} incidents")
    assert n_incidents > n_seeds, "where nothing goes wrong, nothing is proven"


def test_a_seed_of_two_stores_is_the_same_story_every_time() -> None:
    first, second = ([simulate(story_of(seed)) for seed in range(500, 503)] for _ in range(2))

    assert first == second
    assert len({result.fingerprint for result in first}) == 3


@pytest.mark.parametrize("seed", range(4))
def test_of_two_environments_that_promote_a_ref_at_once_one_wins(seed: int) -> None:
    """Rule 16.10: the other is refused by name."""
    names = ("one", "two")
    deeds = [Deed(10 * turn, what, "", after) for turn, (what, after) in enumerate(ONCE)]
    all_deeds = tuple(replace(deed, where=name) for deed in deeds for name in names)
    world = World(Story(seed, all_deeds, Trouble()), place())

    world.begin(changed=["clean"])
    world.scheduler.run_until(NOON + 400)
    world.end()

    promoted = [line for line in world.scheduler.story if "InstancesPromoted(" in line]
    refused = [line for line in world.scheduler.story if "PromoteInstances is refused" in line]
    assert (len(promoted), len(refused)) == (1, 1)
    assert "clean@x: instance" in refused[0]
