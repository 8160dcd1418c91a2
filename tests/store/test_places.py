"""A copied or moved home carries its data along, and touches no other (rule 3.10)."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from databuild_dagster.warehouse.layout import Warehouse
from tests.support.catalog import dataset
from tests.support.homes import ASSETS, Home
from tests.support.world import World


class Homes:
    """Homes that a test makes, copies and moves."""

    def __init__(self, stack: ExitStack) -> None:
        self._stack = stack

    def opened(self, folder: Path, root: str | None = None, *, first_id: int = 1) -> Home:
        world = World([dataset(name) for name in ASSETS], url=f"sqlite:///{folder}/databuild.db", first_id=first_id)
        home = Home(world, Warehouse(root or str(folder / "warehouse")))
        self._stack.callback(world.close)
        self._stack.callback(lambda: folder.exists() and home.assert_sound())
        return home

    def copied(self, folder: Path, into: Path, root: str | None = None) -> Home:
        shutil.copytree(folder, into)
        return self.opened(into, root, first_id=100_000)


@pytest.fixture
def homes() -> Iterator[Homes]:
    with ExitStack() as stack:
        yield Homes(stack)


# Roots inside the home


def test_gc_in_a_copied_home_removes_nothing_of_the_original(homes: Homes, tmp_path: Path) -> None:
    """Rule 3.10: borders 1."""
    original = homes.opened(tmp_path / "original")
    live = original.live("a")
    copy = homes.copied(tmp_path / "original", tmp_path / "copy")
    copy.live_again("a")

    done = copy.cleaner.carry_out(copy.gc())

    assert [removed.uuid for removed in done.going] == [live]
    assert copy.files("a", live) == ["manifest.json"]
    assert original.files("a", live) == ["manifest.json", "part-0.parquet"]


def test_a_moved_home_finds_its_data(homes: Homes, tmp_path: Path) -> None:
    """Rule 3.10"""
    original = homes.opened(tmp_path / "before")
    live = original.live("a")
    original.world.close()

    shutil.move(tmp_path / "before", tmp_path / "after")
    moved = homes.opened(tmp_path / "after", first_id=100_000)

    canonical = moved.world.queries.canonical(["a"])["a"]
    assert canonical.manifest_uri == moved.warehouse.manifest_path("a", live)
