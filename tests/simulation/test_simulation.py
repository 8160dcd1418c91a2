"""Storms over one store, a thousand in CI: what rules 12 says holds when they are over.

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
from tests.simulation.deploying import DEPLOYS
from tests.simulation.processes import Trouble
from tests.simulation.scenario import Deed, Mishaps, scenario_of
from tests.simulation.shrinking import described, shrunk
from tests.simulation.simulate import simulate, simulate_seed
from tests.simulation.stepped import Deck

#: A seed whose partitions are dynamic.
HOSTILE_SEED = 8
WANTED = tuple(Deed(number, "want", 10.0 * number) for number in range(5))

pytestmark = [pytest.mark.long("hundreds of storms take their time"), pytest.mark.timeout(300)]

#: Stops early on a machine that is busy with other things, so that CI's time is bounded; the first ones always run.
MOST_SEEDS, LEAST_SEEDS, MOST_SECONDS = 700, 40, 60.0


@pytest.mark.parametrize("first", [0, MOST_SEEDS])
def test_every_want_ends_and_nothing_is_built_twice_in_any_storm(deck, first):
    """Rules 12, I11 included; 3.3, 4.4, 6.3-6.13, 8.1-8.4, 11.1, 11.5."""
    until = time.monotonic() + MOST_SECONDS
    n_seeds = n_incidents = 0
    for seed in range(first, first + MOST_SEEDS):
        if n_seeds >= LEAST_SEEDS and time.monotonic() > until:
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
    of_the_tick = {
        "BufferLaunch",
        "BufferMissed",
        "ExpireWants",
        "FireArcs",
        "MissSlas",
        "LoseLaunches",
        "ChangeSetAside",
    }
    of_the_operations = {"InvokeMeta", "CompactMeta", "ReplaceFiles"}
    # This storm has one store; that of two_stores.py borrows and promotes between two.
    of_two_stores = {"BorrowInstances", "FollowBase", "PromoteInstances"}
    # The random walks of tests/support/walk.py revert events.
    of_walks = {"RevertEvent"}
    # tests/model/decide/test_returning.py edits code in any order; the code of a storm stays.
    of_edited_code = {"ReturnInstances"}
    known = {cls.__name__ for cls in c.Command.__subclasses__()}

    used = {name for name in known if f"c.{name}(" in Path(members.__file__).read_text()}

    assert used | of_the_tick | of_the_operations | of_two_stores | of_walks | of_edited_code == known


@pytest.mark.parametrize("kind", ["crash", "delay", "freeze", "jump", "blackout"])
def test_everything_that_can_befall_a_process_does(deck, kind):
    """A storm without rain would pass every test."""
    rough = replace(scenario_of(0), trouble=Trouble(**{kind: 0.01}), mishaps=Mishaps())

    result = simulate(rough, deck)

    assert result.failure is None
    assert result.n_incidents > 0


@pytest.mark.parametrize("kind", ["port_raises", "port_hangs"])
def test_every_port_is_troubled_and_a_tick_survives(deck, kind):
    """Rule 11.5"""
    troubled = replace(scenario_of(0), trouble=Trouble(), mishaps=Mishaps(**{kind: 0.1}))

    result = simulate(troubled, deck)

    assert result.failure is None
    assert result.n_incidents > 0


@pytest.mark.parametrize("kind", sorted(set(DEPLOYS)))
def test_every_deploy_changes_the_story(deck, kind):
    """Rule 11.5: it is one of those that a seed may choose, and there is something that it changes."""
    quiet = replace(scenario_of(HOSTILE_SEED), trouble=Trouble(), mishaps=Mishaps(), deeds=WANTED)
    deploying = replace(quiet, deeds=(*WANTED, Deed(len(WANTED), kind, 20.0)))

    without, with_deploy = simulate(quiet, deck), simulate(deploying, deck)

    assert (without.failure, with_deploy.failure) == (None, None)
    assert with_deploy.fingerprint != without.fingerprint


def test_the_deploy_of_a_failing_story_is_in_its_small_one(deck):
    """Rule 6.3: one deploy, and the want whose ref it failed."""
    with mutations.named("dep misses know no deploys").patched():
        failures = (simulate_seed(seed, deck).failure for seed in range(1000))
        first = next(failure for failure in failures if failure is not None)

        small = shrunk(first, deck)

    assert small.kind == first.kind
    assert any(deed.what in DEPLOYS for deed in small.scenario.deeds)
    assert _size(small) <= 3
    assert "RegisterDatasets(here" in described(small) or "DatasetRegistered(here" in described(small)


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
