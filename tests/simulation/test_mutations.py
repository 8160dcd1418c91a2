"""The simulation must be able to fail: without any one of the engine's guards, a seed fails (rules 12)."""

from __future__ import annotations

import pytest

from tests.simulation.mutations import MUTATIONS, search

pytestmark = [pytest.mark.long("hundreds of storms take their time"), pytest.mark.timeout(300)]


@pytest.mark.parametrize("mutation", MUTATIONS, ids=lambda mutation: mutation.name)
def test_a_missing_guard_is_found(mutation):
    """Rules 3.3, 6.4, 6.5, 6.9, 9.3, 9.5, 9.6, 10.5, 10.6"""
    found = search(mutation)

    assert found is not None
    assert (found.failure.kind in mutation.found_as, found.with_guard) == (True, None), found.failure.detail
    if found.n_tried > 1:
        print(f"{mutation.name}: {found.n_tried} seeds tried. Set seed={found.seed} in its row.")
