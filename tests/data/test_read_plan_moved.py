"""After a warehouse moved from a disk to a bucket, instances are read and removed where they were built (decision 0039)."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from databuild_dagster.data.contents import Comparison
from databuild_dagster.data.ownership import Ownership, warehouses_of
from databuild_dagster.data.read_plan import Moment, check_data_of, manifests_in, readable_ref
from databuild_dagster.model import commands as c
from databuild_dagster.model.refs import Ref
from databuild_dagster.store.rebuild import rebuild
from databuild_dagster.warehouse.layout import Warehouse
from databuild_dagster.warehouse.manifest import ManifestState, local_paths, missing_files, read_manifest
from tests.support.homes import Home, Homes, homes

__all__ = ["homes"]


@pytest.fixture
def bucket_root(bucket: str) -> str:
    return f"s3://{bucket}/warehouse"


@pytest.fixture
def home(homes: Homes, tmp_path: Path) -> Home:
    return homes.of(f"sqlite:///{tmp_path}/home/databuild.db", str(tmp_path / "home" / "warehouse"))


def move(home: Home, root: str) -> Warehouse:
    """What another `warehouse` of `build_definitions` does: it names the root of later builds. Returns the earlier one."""
    earlier, home.warehouse = home.warehouse, Warehouse(root)
    Ownership(home.world.store).claim(home.warehouse)
    return earlier


def root_of(home: Home, ref: str) -> str:
    found = readable_ref(home.world.queries, Ref(ref), Moment(), lambda *_: None, allow_tainted=False)
    assert missing_files(found.warehouse, found.manifest) == ()
    return found.warehouse.root


def test_each_instance_is_read_where_it_was_built(home: Home, bucket_root: str, tmp_path: Path) -> None:
    earlier = home.warehouse.root
    home.live("a")
    home.live("b")
    move(home, bucket_root)

    home.live_again("a")

    assert {ref: root_of(home, ref) for ref in "ab"} == {"a": bucket_root, "b": earlier}
    assert list(Comparison(home.world.queries).faults()) == []
    seen = home.world.queries.canonical.of(["b"])["b"]
    # A build in the new warehouse reads it as an input.
    (manifest,) = manifests_in(home.warehouse, "b", [seen])
    (path,) = local_paths(home.warehouse, [manifest])
    assert Path(path).read_bytes() == f"rows of {seen.uuid}".encode()
    # The tables are computed again with both places.
    rebuild(home.world.store)
    assert {ref: root_of(home, ref) for ref in "ab"} == {"a": bucket_root, "b": earlier}


def test_a_revert_goes_back_to_an_instance_of_the_earlier_warehouse(home: Home, bucket_root: str) -> None:
    first = home.live("a")
    earlier = move(home, bucket_root)
    home.live_again("a")
    instance = home.world.queries.instances.get(first)
    assert instance is not None
    check_data_of(home.world.queries, instance, home.world.queries.datasets.get("a"))

    home.world.handle(c.RevertCanonical(ref="a", uuid=first))

    assert root_of(home, "a") == earlier.root


@pytest.mark.feature("clean")
def test_gc_removes_what_is_superseded_in_either_warehouse(home: Home, bucket_root: str) -> None:
    first = home.live("a")
    earlier = move(home, bucket_root)
    second = home.live_again("a")
    third = home.live_again("a")

    done = home.cleaner.carry_out(home.gc())

    assert {going.uuid for going in done.going} == {first, second}
    assert read_manifest(earlier, "a", first).state is ManifestState.REMOVED
    assert not Path(earlier.instance_dir("a", first), "part-0.parquet").exists()
    assert read_manifest(home.warehouse, "a", second).state is ManifestState.REMOVED
    assert root_of(home, "a") == bucket_root
    assert missing_files(home.warehouse, read_manifest(home.warehouse, "a", third)) == ()


@pytest.mark.feature("clean")
def test_leftovers_of_the_earlier_warehouse_are_found(home: Home, bucket_root: str) -> None:
    from databuild_dagster.features.clean.orphan_files import unlisted_storage

    home.live("b")
    failed = home.failed("a")
    earlier = move(home, bucket_root)

    plan = home.cleaner.plan_clean()

    assert [(going.uuid, going.warehouse) for going in plan.going] == [(failed, earlier)]
    now = home.world.clock()
    roots = warehouses_of(home.world.queries, home.warehouse.root)
    assert {warehouse.root for warehouse in roots} == {earlier.root, bucket_root}
    assert [found for warehouse in roots for found in unlisted_storage(home.world.queries, warehouse, now)] == []


@pytest.mark.feature("clean")
def test_a_copied_home_reads_both_and_removes_in_its_own_alone(
    homes: Homes, home: Home, bucket_root: str, tmp_path: Path
) -> None:
    home.live("a")
    home.live("b")
    move(home, bucket_root)
    built = home.live_again("a")
    home.live_again("a")
    shutil.copytree(tmp_path / "home", tmp_path / "copy")
    copy = homes.of(f"sqlite:///{tmp_path}/copy/databuild.db", bucket_root, first_id=100_000)

    plan = copy.gc()

    assert root_of(copy, "b") == str(tmp_path / "copy" / "warehouse")
    assert root_of(copy, "a") == bucket_root
    assert [kept.uuid for kept in plan.kept] == [built]
    assert {going.warehouse.root for going in plan.going} == {str(tmp_path / "copy" / "warehouse")}
