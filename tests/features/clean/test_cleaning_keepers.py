"""Keepers of other features have a say before data is removed: a row is all that one needs (rule 10.8)."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from pathlib import Path

import pytest

from databuild_dagster import feature
from databuild_dagster.data.home import sqlite_url
from databuild_dagster.data.keepers import Keeper
from databuild_dagster.engine.engine import Engine
from databuild_dagster.features.clean.cleaning import Cleaner
from databuild_dagster.model.errors import Refused
from databuild_dagster.model.refs import Ref, asset_of
from databuild_dagster.store.removals import Removable
from tests.support.homes import Home, a_home
from tests.support.project import Project


class ShelfAway(Refused):
    """The shelf is away."""


class Shelf(Keeper):
    """Keeps the instances and files that a test puts into it."""

    name = "its shelf"
    listed = "it is on the shelf"

    def __init__(self) -> None:
        self.why: dict[str, str] = {}
        self.on_shelf: set[str] = set()
        self.is_away = False
        self.calls: list[str] = []

    def files(self, asset: str, older_than_seconds: float) -> set[str]:
        if self.is_away:
            raise ShelfAway
        return self.on_shelf

    def why_kept(self, found: Iterable[Removable]) -> dict[str, str]:
        return {one.uuid: self.why[asset_of(one.ref)] for one in found if asset_of(one.ref) in self.why}

    def expire(self, asset: str, older_than_seconds: float) -> int:
        self.calls.append(f"expire {asset}")
        if self.is_away:
            raise ShelfAway
        return 0

    def changed(self, refs: Collection[Ref]) -> None:
        self.calls.append(f"removed {', '.join(sorted(refs))}")


@pytest.fixture
def home(tmp_path: Path) -> Iterator[Home]:
    made = a_home(tmp_path, f"sqlite:///{tmp_path}/build.db")
    yield made
    made.assert_sound()
    made.world.store.close()


def cleaner(home: Home, *keepers: Keeper) -> Cleaner:
    return Cleaner(home.world.engine, home.warehouse.root, keepers)


def test_data_of_which_a_keeper_lists_a_file_stays(home: Home) -> None:
    first, _ = home.live("a"), home.live_again("a")
    shelf = Shelf()
    shelf.on_shelf = {f"{home.warehouse.instance_dir('a', first)}/part-0.parquet"}

    plan = cleaner(home, shelf).plan_gc(keep=0, older_than_seconds=0.0)

    assert [(instance.uuid, instance.why) for instance in plan.kept] == [(first, "it is on the shelf")]


def test_data_of_a_dataset_whose_keeper_cannot_be_read_stays(home: Home) -> None:
    first, _ = home.live("a"), home.live_again("a")
    shelf = Shelf()
    shelf.is_away = True

    plan = cleaner(home, shelf).plan_gc(keep=0, older_than_seconds=0.0)

    assert [(instance.uuid, instance.why) for instance in plan.kept] == [
        (first, "its shelf cannot be read: The shelf is away.")
    ]


def test_a_keeper_that_is_away_once_the_plan_is_carried_out_holds_up_only_its_dataset(home: Home) -> None:
    home.live("a"), home.live_again("a")
    shelf = Shelf()
    cleaner_now = cleaner(home, shelf)
    plan = cleaner_now.plan_gc(keep=0, older_than_seconds=0.0)
    shelf.is_away = True

    done = cleaner_now.carry_out(plan)

    assert (done.going, done.failed) == ([], [("a", "The shelf is away.")])
    assert shelf.calls == ["expire a"]


def test_a_reason_that_comes_after_the_plan_keeps_the_data_until_the_next_clean_up(home: Home) -> None:
    first, _ = home.live("a"), home.live_again("a")
    shelf = Shelf()
    cleaner_now = cleaner(home, shelf)
    plan = cleaner_now.plan_gc(keep=0, older_than_seconds=0.0)
    shelf.why = {"a": "it is lent"}

    kept = cleaner_now.carry_out(plan).kept
    shelf.why = {}
    finished = cleaner_now.carry_out(cleaner_now.plan_gc(keep=0, older_than_seconds=0.0)).finished

    assert [(instance.uuid, instance.why) for instance in kept] == [(first, "it is lent")]
    assert [instance.uuid for instance in finished] == [first]


def test_gc_asks_the_keeper_of_a_row_and_says_what_was_removed(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    shelf = Shelf()

    def open_shelf(engine: Engine, warehouse: str, *, seconds: float | None, instance: object) -> Shelf:
        return shelf

    row = feature.Feature(package="shelf", summary="Instances are lent.", keeps=feature.Column(given=(open_shelf,)))
    every = (*feature.features(), row)
    monkeypatch.setattr(feature, "features", lambda: every)
    home = a_home(project.home, sqlite_url(project.home))
    home.live("a"), home.live_again("a")
    shelf.why = {"a": "it is lent"}

    kept = project.ask("gc", "--keep", "0", "--yes")
    shelf.why = {}
    gone = project.ask("gc", "--keep", "0", "--yes")

    assert [instance["why"] for instance in kept["kept"]] == ["it is lent"]
    assert (len(kept["instances"]), len(gone["instances"])) == (0, 1)
    assert shelf.calls == ["expire a", "removed a"]
