"""The whole paths of an older version's log are understood in a home that was moved or copied (rule 3.10)."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from databuild_dagster.data.former_homes import note_former_homes
from databuild_dagster.store.format import FIRST_RELATIVE, LOG_VERSION
from databuild_dagster.store.places import Places
from databuild_dagster.store.rebuild import migrate
from databuild_dagster.store.store import Store
from tests.support.homes import Home, a_home


@pytest.fixture
def older(tmp_path: Path) -> Home:
    """A home whose log has whole paths, as an older version recorded them."""
    home = a_home(tmp_path / "old", f"sqlite:///{tmp_path}/old/databuild.db")
    home.world.store.places = Places(None)
    home.live("a")
    home.world.set_meta("log_version", FIRST_RELATIVE - 1)
    home.world.close()
    return home


def migrated(folder: Path) -> Home:
    store = Store(f"sqlite:///{folder}/databuild.db", check_projections=False)
    note_former_homes(store)
    migrate(store)
    store.close()
    return a_home(folder, f"sqlite:///{folder}/databuild.db")


def place_of(home: Home) -> str | None:
    return home.world.queries.canonical(["a"])["a"].manifest_uri


def test_whole_paths_inside_the_home_are_understood_where_it_was_upgraded(older: Home, tmp_path: Path) -> None:
    """Rule 3.10"""
    home = migrated(tmp_path / "old")

    assert place_of(home) == home.warehouse.manifest_path("a", home.world.queries.history("a")[0].uuid)
    home.assert_sound()
    home.world.close()


@pytest.mark.parametrize("after_the_upgrade", [True, False])
def test_whole_paths_inside_the_home_are_understood_after_a_copy(
    older: Home, tmp_path: Path, after_the_upgrade: bool
) -> None:
    """Rule 3.10: the original is left alone."""
    if after_the_upgrade:
        migrated(tmp_path / "old").world.close()
    shutil.copytree(tmp_path / "old", tmp_path / "new")

    copy = migrated(tmp_path / "new")

    uuid = copy.world.queries.history("a")[0].uuid
    assert place_of(copy) == f"{tmp_path}/new/warehouse/a/data/instance={uuid}/manifest.json"
    copy.world.ids.following += 100_000
    copy.live_again("a")
    copy.cleaner.carry_out(copy.gc())
    assert older.files("a", uuid) == ["manifest.json", "part-0.parquet"]
    assert copy.files("a", uuid) == ["manifest.json"]
    copy.world.close()


def test_a_path_outside_the_home_stays_as_it_was_recorded(tmp_path: Path) -> None:
    """Rule 3.10: a warehouse that the home never held."""
    url = f"sqlite:///{tmp_path}/home/databuild.db"
    home = Home(a_home(tmp_path / "home", url).world, a_home(tmp_path / "elsewhere").warehouse)
    home.world.store.places = Places(None)
    uuid = home.live("a")
    home.world.set_meta("log_version", LOG_VERSION - 1)
    home.world.close()

    moved = migrated(tmp_path / "home")

    assert place_of(moved) == home.warehouse.manifest_path("a", uuid)
    moved.world.close()
