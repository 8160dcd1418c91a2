"""The simulation must be able to fail: with any of the engine's guards taken out, it does, within 1,000 seeds."""

from __future__ import annotations

import pytest

from tests.simulation.mutations import MUTATIONS
from tests.simulation.simulate import simulate_seed
from tests.simulation.stepped import Deck

pytestmark = [pytest.mark.long, pytest.mark.timeout(300)]

MOST_SEEDS = 1000


@pytest.mark.parametrize("mutation", MUTATIONS, ids=lambda mutation: mutation.name)
def test_a_missing_guard_is_found(mutation):
    """SPEC 3.3, 6.4, 6.5, 6.9, 10.5, 10.6"""
    deck = Deck(mutation.store_class)
    with mutation.patched():
        found = next(
            ((seed, failure) for seed in range(MOST_SEEDS) if (failure := simulate_seed(seed, deck).failure)), None
        )
    deck.close()

    assert found is not None
    seed, failure = found
    print(f"{mutation.name}: found by seed {seed}, after {seed + 1} seeds, as {failure.kind}")
    assert failure.kind in mutation.found_as, failure.detail
