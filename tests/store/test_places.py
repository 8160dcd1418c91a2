"""A copied or moved home carries its data along, and touches no other (rule 3.10)."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from databuild_dagster.store.places import Places
from tests.support.homes import Homes, homes

__all__ = ["homes"]

# Roots inside the home


@pytest.mark.feature("clean")
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

    canonical = moved.world.queries.canonical.of(["a"])["a"]
    assert canonical.manifest_uri == moved.warehouse.manifest_path("a", live)


@pytest.mark.parametrize("folder", ["home/warehouse", "home/.environments/x", "home.environments/x", "other/x"])
def test_a_recorded_path_means_the_path_that_was_recorded(tmp_path: Path, folder: str) -> None:
    """Rule 3.10"""
    places, path = Places(str(tmp_path / "home")), f"{tmp_path}/{folder}/manifest.json"

    assert places.whole(places.recorded(path)) == path
