"""A base in a home of its own, and environments of it, without Dagster and Spark."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import cast

import pytest
from msgspec.structs import replace

from databuild_dagster.data.environment import environment_of
from databuild_dagster.data.home import DB_URL_VARIABLE, sqlite_url
from databuild_dagster.engine.engine import Engine
from databuild_dagster.engine.ports import Provided
from databuild_dagster.features.environments.borrowing import provide
from databuild_dagster.features.environments.environments import Environments
from databuild_dagster.model.datasets import CODE_RULES, Catalog, CodeSpec, DatasetKind, DatasetSpec
from databuild_dagster.model.refs import Ref
from databuild_dagster.store.errors import StoreReplaced
from databuild_dagster.store.store import open_store
from tests.support.catalog import SmallCatalog, dataset
from tests.support.world import World, worlds


def coded(asset: str, *needs: str, code: str = "1", settings: Iterable[str] = ()) -> DatasetSpec:
    """A dataset whose code has a digest; `code` is that of its only function."""
    parts = ((f"{asset} in shop.py", code),)
    return replace(of_keys(asset, *needs), code=CodeSpec(f"{CODE_RULES}:{asset}-{code}", (), parts, tuple(settings)))


def of_keys(asset: str, *needs: str, kind: DatasetKind = DatasetKind.OURS, version: str | None = None) -> DatasetSpec:
    """A dataset of the partitions x and y, in the text of Dagster."""
    text = json.dumps({"__class__": "ExternalStaticPartitionsDefinitionData", "partition_keys": ["x", "y"]})
    return replace(dataset(asset, *needs, kind=kind, code_version=version), partitions=text)


RAW = of_keys("raw", kind=DatasetKind.BOUNDARY)
#: raw comes from outside; clean and other read it; report reads both.
SHOP = (RAW, coded("clean", "raw"), coded("other", "raw"), coded("report", "clean", "other"))


def changed(*specs: DatasetSpec) -> tuple[DatasetSpec, ...]:
    """The datasets of a branch: the shop's, with other registrations of some."""
    found = {spec.asset: spec for spec in (*SHOP, *specs)}
    return tuple(found.values())


@dataclass
class Shop:
    """The base, and how environments of it are opened."""

    home: Path
    base: World
    #: Called with each store that an environment's command opens.
    traced: Callable[[Engine], None] = lambda engine: None
    worlds: list[World] = field(default_factory=list)

    @property
    def environments(self) -> Environments:
        return Environments(self.home, self._open)

    def over(self, url: str) -> Environments:
        """The environments that a command finds with a different url of the base."""
        return Environments(self.home, lambda home: self._open(home, url))

    def _open(self, home: Path, url_of_base: str = "") -> Engine:
        url = url_of_base or self.base.store.url if environment_of(home) is None else sqlite_url(home)
        engine = Engine(open_store(url), cast(Catalog, SmallCatalog(())), clock=self.base.clock)
        self.traced(engine)
        return engine

    def branch(self, *specs: DatasetSpec, name: str = "branch", days: float = 14, is_pinned: bool = True) -> World:
        """The world of a new environment, with the datasets of a branch."""
        opened = self.environments.create(name, days=days, is_pinned=is_pinned)
        world = World(changed(*specs), url=sqlite_url(Path(opened.home)), first_id=1_000_000 * (1 + len(self.worlds)))
        self.worlds.append(world)
        return world

    def build(self, key: str) -> None:
        """Build everything of a key in the base."""
        if self.base.state(f"raw@{key}") is None:
            self.base.arrive(f"raw@{key}", f"dagster event {key}")
        for asset, inputs in {"clean": ["raw"], "other": ["raw"], "report": ["clean", "other"]}.items():
            self.base.succeed(f"{asset}@{key}", inputs=[f"{name}@{key}" for name in inputs])


def borrow(world: World, *refs: str) -> Provided:
    return provide(world.engine, [Ref(ref) for ref in refs])


@pytest.fixture
def shop(tmp_path: Path) -> Iterator[Shop]:
    home = tmp_path / "base"
    home.mkdir()
    with opened_shop(home, sqlite_url(home)) as found:
        yield found


@pytest.fixture
def shop_on_server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Shop]:
    """A base in PostgreSQL, for a test with the mark `databases("postgres")`."""
    home = tmp_path / "base"
    home.mkdir()
    monkeypatch.setenv(DB_URL_VARIABLE, url := worlds.new_url())
    with opened_shop(home, url) as found:
        yield found


@pytest.fixture
def any_shop(request: pytest.FixtureRequest, database: str) -> Shop:
    """A base in the database of the test."""
    found: Shop = request.getfixturevalue("shop" if database == "sqlite" else "shop_on_server")
    return found


@contextmanager
def opened_shop(home: Path, url: str) -> Iterator[Shop]:
    """A base with a key that is built, checked at the end."""
    found = Shop(home, World(SHOP, url=url))
    found.build("x")
    yield found
    for world in (found.base, *found.worlds):
        with suppress(StoreReplaced):
            assert world.broken() == []
        world.close()
