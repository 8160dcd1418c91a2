"""Fixtures for the core's tests; each directory's conftest takes them over.

Every world that a test made is checked when the test is over: no story may end in a state that breaks an invariant.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator

import pytest
from hypothesis import HealthCheck, settings

from databuild_dagster.model.datasets import DatasetSpec

from .catalog import dataset
from .world import World

_quiet = [HealthCheck.too_slow, HealthCheck.function_scoped_fixture, HealthCheck.filter_too_much]
settings.register_profile("ci", max_examples=40, stateful_step_count=25, deadline=None, suppress_health_check=_quiet)
settings.register_profile(
    "long", max_examples=1500, stateful_step_count=60, deadline=None, suppress_health_check=_quiet
)
settings.load_profile("long" if os.environ.get("DATABUILD_LONG") else "ci")

MakeWorld = Callable[..., World]


@pytest.fixture
def make_world() -> Iterator[MakeWorld]:
    """A world of the datasets given, checked at the end."""
    made: list[World] = []

    def make(*datasets: DatasetSpec, url: str = "sqlite://") -> World:
        made.append(World(datasets, url=url))
        return made[-1]

    yield make
    for world in made:
        found = world.check()
        assert found == []
        world.store.close()


@pytest.fixture
def world(make_world: MakeWorld) -> World:
    """Unpartitioned `a` to `e`, free to miss each other, `days` with three keys, and the pair `left` and `right` of one job."""
    return make_world(
        *(dataset(name) for name in "abcde"),
        dataset("days", keys=["1", "2", "3"]),
        dataset("left", job="pair"),
        dataset("right", job="pair"),
    )
