"""A store removes files, adopts and builds only in warehouses that it owns (rule 3.11)."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from databuild_dagster.data.lost_run_output import WarehouseRemains
from databuild_dagster.data.ownership import (
    MARKER_NAME,
    Marker,
    Ownership,
    RootOfAnother,
    marker_of,
    plan_take_over,
    take_over,
)
from databuild_dagster.store.format import META, PLACE, STORE_ID
from tests.support.homes import Home, Homes, homes

__all__ = ["homes"]


def claim(home: Home) -> None:
    Ownership(home.world.store).claim(home.warehouse)


def owns(home: Home) -> bool:
    return Ownership(home.world.store).why_not(home.warehouse) is None


def both_files(home: Home, uuid: str) -> bool:
    return home.files("a", uuid) == ["manifest.json", "part-0.parquet"]


@pytest.fixture
def outside(tmp_path: Path) -> str:
    """A warehouse outside of every home."""
    return str(tmp_path / "bucket")


@pytest.fixture
def original(homes: Homes, tmp_path: Path, outside: str) -> Home:
    """A home that has built into the warehouse outside of it."""
    home = homes.opened(tmp_path / "original", outside)
    claim(home)
    return home


def test_the_first_build_marks_a_warehouse_with_the_id_and_the_place_of_its_store(original: Home) -> None:
    """Rule 3.11"""
    identity = original.world.store.identity()

    assert marker_of(original.warehouse) == Marker(str(identity.id), str(identity.place))
    assert owns(original)


def test_a_build_that_begins_while_another_one_marks_the_warehouse_is_not_refused(
    homes: Homes, tmp_path: Path, outside: str
) -> None:
    """Rule 3.11"""
    home = homes.opened(tmp_path / "original", outside)
    second = Ownership(home.world.store)
    assert second.why_not(home.warehouse) == "no marker says which build state owns it"

    claim(home)

    second.claim(home.warehouse)


@pytest.mark.feature("clean")
def test_a_copied_home_leaves_a_warehouse_outside_it_alone(
    homes: Homes, original: Home, tmp_path: Path, outside: str
) -> None:
    """Rule 3.11: borders 1."""
    superseded, live = original.live("a"), original.live_again("a")
    failed = original.failed("b")
    copy = homes.copied(tmp_path / "original", tmp_path / "copy", outside)

    gc, clean = copy.gc(), copy.cleaner.plan_clean()
    done = copy.cleaner.carry_out(gc), copy.cleaner.carry_out(clean, orphans=True)

    assert gc.is_empty
    assert clean.is_empty
    assert "this build state is a copy" in str(gc.roots[outside])
    assert [kept.uuid for kept in gc.kept] == [superseded]
    assert all(not one.going for one in done)
    assert both_files(original, superseded)
    assert both_files(original, live)
    assert original.files("b", failed) == ["manifest.json", "part-0.parquet"]


def test_a_copied_home_may_not_build_into_the_original_s_warehouse(
    homes: Homes, original: Home, tmp_path: Path, outside: str
) -> None:
    """Rule 3.11"""
    copy = homes.copied(tmp_path / "original", tmp_path / "copy", outside)

    with pytest.raises(RootOfAnother, match="databuild log take-over"):
        claim(copy)
    claim(original)


@pytest.mark.feature("clean")
def test_a_copy_that_takes_over_owns_the_warehouse_and_the_original_does_not(
    homes: Homes, original: Home, tmp_path: Path, outside: str
) -> None:
    """Rule 3.11"""
    live = original.live("a")
    copy = homes.copied(tmp_path / "original", tmp_path / "copy", outside)
    before = copy.world.store.identity()

    (taken,) = take_over(copy.world.store, [copy.warehouse])

    assert taken == (outside, before.place, None)
    assert owns(copy)
    assert not owns(original)
    assert copy.world.store.identity().id != before.id
    original.live_again("a")
    assert original.gc().is_empty
    with pytest.raises(RootOfAnother, match="its marker names another build state"):
        claim(original)
    assert both_files(original, live)


def test_a_moved_home_owns_its_warehouses(homes: Homes, original: Home, tmp_path: Path, outside: str) -> None:
    """Rule 3.11: on one disk its file keeps its inode."""
    original.world.close()
    os.rename(tmp_path / "original", tmp_path / "moved")

    assert owns(homes.opened(tmp_path / "moved", outside, first_id=100_000))


@pytest.mark.feature("clean")
def test_a_store_may_not_use_the_warehouse_of_another_log(
    homes: Homes, original: Home, tmp_path: Path, outside: str
) -> None:
    """Rule 3.11"""
    live = original.live("a")
    other = homes.opened(tmp_path / "other", outside, first_id=100_000)

    with pytest.raises(RootOfAnother, match="its marker names another build state"):
        claim(other)
    plan = other.cleaner.plan_clean()

    assert plan.leftovers == []
    other.cleaner.carry_out(plan, orphans=True)
    assert both_files(original, live)


@pytest.mark.feature("clean")
def test_what_a_restored_log_does_not_know_is_no_leftover_before_it_takes_over(homes: Homes, tmp_path: Path) -> None:
    """Rule 3.11: also where the restored file has the inode of the original."""
    home = homes.opened(tmp_path / "home")
    home.live("a")
    home.world.store.database.backup(str(tmp_path / "backup.db"))
    newer = home.live("b")
    home.world.close()
    for path in (tmp_path / "home").glob("databuild.db-*"):
        path.unlink()
    shutil.copyfile(tmp_path / "backup.db", tmp_path / "home" / "databuild.db")
    restored = homes.opened(tmp_path / "home", first_id=100_000)
    two_hours_ago = restored.world.clock.now - 7200
    os.utime(restored.warehouse.manifest_path("b", newer), (two_hours_ago, two_hours_ago))
    for file in Path(restored.warehouse.instance_dir("b", newer)).iterdir():
        os.utime(file, (two_hours_ago, two_hours_ago))

    before = restored.cleaner.plan_clean()
    take_over(restored.world.store, [restored.warehouse])
    after = restored.cleaner.plan_clean()

    assert before.leftovers == []
    assert [leftover.uuid for leftover in after.leftovers] == [newer]
    assert restored.cleaner.carry_out(after).leftovers == []


@pytest.mark.feature("clean")
def test_a_copy_made_during_a_build_removes_nothing_of_the_build(
    homes: Homes, original: Home, tmp_path: Path, outside: str
) -> None:
    """Rule 3.11: the copy sees a job run without a process."""
    uuid = original.store("a", manifest=False)
    copy = homes.copied(tmp_path / "original", tmp_path / "copy", outside)
    (launch,) = copy.world.queries.launches.open()
    copy.world.lose("a")
    copy.world.clock.turn(7200)

    cleared = WarehouseRemains(copy.world.engine, outside).clear([launch.launch_id])
    copy.cleaner.carry_out(copy.cleaner.plan_clean(), orphans=True)

    assert cleared == []
    assert original.files("a", uuid) == ["part-0.parquet"]
    original.world.fail("a")


@pytest.mark.feature("clean")
def test_the_store_of_an_older_version_builds_and_removes_only_after_it_takes_over(
    homes: Homes, tmp_path: Path, outside: str
) -> None:
    """Rule 3.11: no record says which of its copies owns the warehouse."""
    home = homes.opened(tmp_path / "old", outside)
    with home.world.store.writing() as work:
        work.connection.execute(f"DELETE FROM {META} WHERE key IN (?, ?)", (STORE_ID, PLACE))
    home.live("a")
    home.live_again("a")

    claim(home)
    before = home.gc()
    take_over(home.world.store, [home.warehouse])

    assert before.is_empty
    assert len(home.gc().going) == 1


def test_a_take_over_leaves_a_warehouse_inside_another_home_alone(homes: Homes, tmp_path: Path) -> None:
    """Rule 3.11: the whole paths of an older version's copy may name the original's home."""
    other = homes.opened(tmp_path / "other")
    other.live("a")
    home = homes.opened(tmp_path / "home", first_id=100_000)

    (unnamed,) = plan_take_over(home.world.store, [home.warehouse, other.warehouse])
    (named,) = plan_take_over(home.world.store, [other.warehouse], {other.warehouse.root})

    assert unnamed == (other.warehouse.root, None, f"it is inside the home {tmp_path}/other")
    assert named.why_not is None


def test_a_warehouse_whose_marker_cannot_be_read_is_not_owned(original: Home, outside: str) -> None:
    (Path(outside) / MARKER_NAME).write_bytes(b"\xff{")

    assert not owns(original)


def test_a_backup_in_the_home_does_not_own_the_home_s_warehouse(homes: Homes, tmp_path: Path) -> None:
    """Rule 3.11: opened by DATABUILD_DB_URL, say."""
    home = homes.opened(tmp_path / "home")
    home.live("a")
    home.world.store.database.backup(str(tmp_path / "home" / "monday.db"))

    backup = homes.of(f"sqlite:///{tmp_path}/home/monday.db", home.warehouse.root, first_id=100_000)

    assert not owns(backup)
    assert owns(home)


def test_a_copied_home_may_not_write_the_copies_of_the_original_s_home(homes: Homes, tmp_path: Path) -> None:
    """Rule 3.11: its cursors name the original's warehouse."""
    original = homes.opened(tmp_path / "original")
    copy = homes.copied(tmp_path / "original", tmp_path / "copy")

    assert Ownership(original.world.store).may_write(original.warehouse)
    assert Ownership(copy.world.store).may_write(copy.warehouse)
    assert not Ownership(copy.world.store).may_write(original.warehouse)
    take_over(copy.world.store, [copy.warehouse])
    assert not Ownership(copy.world.store).may_write(original.warehouse)
    with copy.world.store.writing() as work:
        work.connection.execute(f"DELETE FROM {META} WHERE key IN (?, ?)", (STORE_ID, PLACE))
    assert not Ownership(copy.world.store).may_write(original.warehouse)
    assert marker_of(original.warehouse) is None
