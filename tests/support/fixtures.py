"""Fixtures for the core's tests, in memory, on SQLite and on PostgreSQL; each directory's conftest takes them over.

Every world that a test made is checked when the test is over: no story may end in a state that breaks an invariant.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from databuild_dagster.model.datasets import DatasetSpec

from .catalog import dataset
from .model_world import ModelWorld
from .postgres import postgres_server
from .world import World, worlds

TESTS = Path(__file__).parent.parent

MakeWorld = Callable[..., World]

#: Where the worlds of each folder keep their state. A module overrides it by DATABASES, a test by the mark `databases`.
#: An empty one means that no test of the module makes a world. `also` names one where only `--database` runs a test.
DATABASES = {"model": ("memory",), "engine": ("sqlite",), "store": ("sqlite", "postgres"), "features": ("sqlite",)}


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    databases = _databases(metafunc.definition)
    if len(databases) != 1:
        metafunc.parametrize("database", databases, indirect=True)


def _databases(test: pytest.Item) -> tuple[str, ...]:
    """With `--database postgres`, that one alone wherever a test can run on it."""
    mark = test.get_closest_marker("databases")
    of_module = getattr(test.module, "DATABASES", None)  # type: ignore[attr-defined]
    restricted: tuple[str, ...] | None = of_module if mark is None else mark.args
    also: str | None = None if mark is None else mark.kwargs.get("also")
    chosen: str | None = test.config.getoption("--database")
    if chosen is None:
        return DATABASES[test.path.relative_to(TESTS).parts[0]] if restricted is None else restricted or ("none",)
    return (chosen,) if restricted is None or chosen in (*restricted, also) else ()


@pytest.fixture(autouse=True)
def database(request: pytest.FixtureRequest) -> Iterator[str]:
    """Where worlds are, unless they say otherwise."""
    name: str = getattr(request, "param", None) or _databases(request.node)[0]
    if name != "postgres":
        yield name
        return
    server = postgres_server()
    urls: list[str] = []

    def fresh_url() -> str:
        urls.append(server.fresh_url())
        return urls[-1]

    worlds.new_url = fresh_url
    try:
        yield "postgres"
    finally:
        worlds.new_url = worlds.in_memory
        worlds.close_all()
        # A process keeps its engine on a url, with the end of the log that it has seen there; few tests import Dagster.
        instances = sys.modules.get("databuild_dagster.bindings.registry.instance")
        for url in urls:
            if instances is not None:
                instances.close_engine(url)
            server.take_back(url)


@pytest.fixture
def shared_url(database: str, tmp_path: Path) -> str:
    """Of a database that other processes can open too."""
    return f"sqlite:///{tmp_path}/build.db" if database == "sqlite" else worlds.new_url()


@pytest.fixture
def make_world(database: str) -> Iterator[MakeWorld]:
    """A world of the datasets given, checked at the end."""
    made: list[World] = []

    def make(*datasets: DatasetSpec, url: str | None = None) -> World:
        made.append(ModelWorld(datasets) if database == "memory" else World(datasets, url=url))
        return made[-1]

    yield make
    for world in made:
        found = world.check()
        assert found == []
        world.close()


@pytest.fixture
def world(make_world: MakeWorld) -> World:
    """Unpartitioned `a` to `e`, free to miss each other, `days` with three keys, and the pair `left` and `right` of one job."""
    return make_world(
        *(dataset(name) for name in "abcde"),
        dataset("days", keys=["1", "2", "3"]),
        dataset("left", job="pair"),
        dataset("right", job="pair"),
    )
