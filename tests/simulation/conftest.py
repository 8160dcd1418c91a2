"""One file and its connections for all seeds of a run."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.simulation.stepped import Deck


@pytest.fixture(scope="session")
def deck() -> Iterator[Deck]:
    made = Deck()
    yield made
    made.close()
