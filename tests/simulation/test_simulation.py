"""Storms over one store, a few hundred in CI: what rules 12 says holds when they are over.

`make simulate SEEDS=10000` has more of the same.
"""

from __future__ import annotations

import time
from dataclasses import replace
from itertools import islice
from pathlib import Path

import pytest

from databuild_dagster.model import commands as c
from tests.simulation import members, mutations
from tests.simulation.processes import Trouble
from tests.simulation.scenario import Mishaps, scenario_of
from tests.simulation.shrinking import described, shrunk
from tests.simulation.simulate import simulate, simulate_seed
from tests.simulation.stepped import Deck

pytestmark = [pytest.mark.long, pytest.mark.timeout(300)]

#: Stops early on a machine that is busy with other things, so that CI's time is bounded; the first ones always run.
MOST_SEEDS, LEAST_SEEDS, MOST_SECONDS = 400, 40, 25.0


def test_every_want_ends_and_nothing_is_built_twice_in_any_storm(deck):
    """Rules 12, I11 included; 3.3, 4.4, 6.3-6.10, 8.1-8.4, 11.1."""
    until = time.monotonic() + MOST_SECONDS
    n_seeds = n_incidents = 0
    for seed in range(MOST_SEEDS):
        if seed >= LEAST_SEEDS and time.monotonic() > until:
            break
        result = simulate_seed(seed, deck)
        if result.failure is not None:
            pytest.fail(described(shrunk(result.failure, deck), result.failure), pytrace=False)
        n_seeds, n_incidents = n_seeds + 1, n_incidents + result.n_incidents

    print(f"{n_seeds} seeds, {n_incidents} incidents")
    assert n_incidents > n_seeds, "where nothing goes wrong, nothing is proven"


def test_a_seed_is_the_same_story_every_time(deck):
    seeds = range(500, 520)
    again = Deck()

    first = [simulate_seed(seed, deck) for seed in seeds]
    second = [simulate_seed(seed, again) for seed in seeds]
    again.close()

    assert first == second
    assert len({result.fingerprint for result in first}) == len(seeds)


def test_the_storm_knows_every_command():
    """An action that is not in it is not tried."""
    of_the_tick = {"BufferLaunch", "BufferMissed", "ExpireWants", "FireArcs", "MissSlas", "LoseLaunches"}
    of_the_operations = {"InvokeMeta", "CompactMeta", "ReplaceFiles"}
    known = {cls.__name__ for cls in c.Command.__subclasses__()}

    used = {name for name in known if f"c.{name}(" in Path(members.__file__).read_text()}

    assert used | of_the_tick | of_the_operations == known


@pytest.mark.parametrize("kind", ["crash", "delay", "freeze", "jump", "blackout"])
def test_everything_that_can_befall_a_process_does(deck, kind):
    """A storm without rain would pass every test."""
    rough = replace(scenario_of(0), trouble=Trouble(**{kind: 0.01}), mishaps=Mishaps())

    result = simulate(rough, deck)

    assert result.failure is None
    assert result.n_incidents > 0


def test_a_failing_story_is_made_small_enough_to_read(deck):
    """Of all deeds and incidents, the late process and the reason are left. Some stories stay long."""
    with mutations.named("fencing is switched off").patched():
        failures = (simulate_seed(seed, deck).failure for seed in range(1000))
        large = list(islice((failure for failure in failures if failure is not None and _size(failure) >= 8), 3))

        pairs = [(shrunk(item, deck), item) for item in large]

    assert all(small.kind == pair.kind and _size(small) < _size(pair) for small, pair in pairs)
    small, first = min(pairs, key=lambda pair: _size(pair[0]))
    assert _size(small) <= _size(first) / 2
    story = described(small, first)
    assert "WantCreated" in story
    assert f"make simulate FIRST={first.scenario.seed} SEEDS=1" in story


def _size(failure):
    """The deeds, and the incidents."""
    return len(failure.scenario.deeds) + len(failure.incidents)


def test_clocks_that_leap_by_hours_and_are_set_right_hold_nothing_up(deck):
    """Rules 3.1, I11: retries, expiry, deadlines and leases go on, within a calm that is far shorter than the leap."""
    n_incidents = 0
    for seed in range(25):
        scenario = scenario_of(seed)
        leaping = replace(scenario, trouble=replace(scenario.trouble, jump=0.02))
        result = simulate(leaping, deck)
        if result.failure is not None:
            pytest.fail(described(shrunk(result.failure, deck), result.failure), pytrace=False)
        n_incidents += result.n_incidents

    assert n_incidents > 25
