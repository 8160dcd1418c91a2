"""What an environment has built is compared with what its base has now (rule 16.7)."""

from __future__ import annotations

from pathlib import Path

import pytest
from msgspec.structs import replace

from databuild_dagster.features.compare.ranges import NoSuchKey, Span
from databuild_dagster.features.environments.comparing import DatasetDifference, EnvironmentDifference, compare
from databuild_dagster.model.refs import Ref
from databuild_dagster.warehouse.layout import Warehouse
from tests.features.environments.conftest import Shop, borrow, coded
from tests.support.parquet_rows import written_fact
from tests.support.world import World


def build(world: World, place: Path, ref: str, content_hash: str | None = None, **columns: list[object]) -> None:
    """A build of a ref, after a taint if there is one."""
    if world.state(ref) is not None:
        world.taint(ref)
    written = written_fact(Warehouse(str(place)), ref, world.job_run(ref), columns)
    world.succeed(ref, manifest=replace(written, content_hash=content_hash))


def compared(shop: Shop, branch: World, *refs: str, key: tuple[str, ...] = ()) -> EnvironmentDifference:
    asked = [Ref(ref) for ref in refs] or None
    return compare("branch", shop.base.queries, branch.queries, asked, key)


def of(found: EnvironmentDifference, dataset: str) -> DatasetDifference:
    return next(difference for difference in found.datasets if difference.dataset == dataset)


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """A folder for the data of the base."""
    return tmp_path / "production"


@pytest.fixture
def branch(shop: Shop, place: Path) -> World:
    """Changes clean. The base has rows of clean and other, and the environment has borrowed other."""
    for ref in ("clean@x", "other@x"):
        build(shop.base, place, ref, id=[1, 2, 3], amount=[10, 20, 30])
    world = shop.branch(coded("clean", "raw", code="2"))
    borrow(world, "other@x")
    return world


def test_built_refs_are_compared_with_what_the_base_has_now(shop: Shop, branch: World, place: Path) -> None:
    build(branch, place, "clean@x", id=[1, 2], amount=[10, 20])
    build(branch, place, "clean@y", id=[1], amount=[10])
    assert of(compared(shop, branch), "clean").counts == {"different": 1, "new": 1}

    build(shop.base, place, "clean@x", id=[2, 1], amount=[20, 10])

    found = compared(shop, branch)
    assert (found.counts, found.seq) == ({"equal": 1, "new": 1}, shop.base.seq)
    assert [(one.ref, one.outcome) for one in of(found, "clean").partitions] == [("clean@y", "new")]


def test_no_file_is_read_where_the_hashes_are_equal(shop: Shop, branch: World, place: Path, tmp_path: Path) -> None:
    build(shop.base, place, "clean@x", "arrow-1:1:0a", id=[1])
    build(branch, tmp_path / "lost", "clean@x", "arrow-1:1:0a", id=[1])
    (tmp_path / "lost").rename(tmp_path / "elsewhere")

    found = compared(shop, branch)

    assert (found.counts, found.by_hash) == ({"equal": 1}, 1)


def test_a_change_names_columns_values_and_consumers_in_the_base(shop: Shop, branch: World, place: Path) -> None:
    build(shop.base, place, "clean@y", id=[1], amount=[90], more=["x"])
    build(branch, place, "clean@x", id=[1, 2, 3], amount=[10, 25, None])
    build(branch, place, "clean@y", id=[1], amount=[95], less=["x"])

    clean = of(compared(shop, branch), "clean")

    assert [(column.name, column.change) for column in clean.columns] == [("less", "added"), ("more", "removed")]
    (amount,) = clean.values
    assert (amount.name, amount.partitions, amount.rows) == ("amount", 2, None)
    assert (amount.a, amount.b) == (Span(0, 10, 90), Span(1, 10, 95))
    assert clean.consumers == ["report"]
    assert (clean.rows_a, clean.rows_b, clean.added) == (4, 4, None)


def test_a_key_counts_rows_of_the_datasets_that_have_it(shop: Shop, branch: World, place: Path) -> None:
    build(branch, place, "clean@x", id=[1, 2, 4, 5], amount=[10, 25, 40, 50])
    build(shop.base, place, "report@x", total=[60])
    build(branch, place, "report@x", total=[125])

    found = compared(shop, branch, key=("id",))

    clean = of(found, "clean")
    assert (clean.added, clean.removed, clean.changed) == (2, 1, 1)
    assert found.without_key == ["report"]
    assert [value.name for value in of(found, "report").values] == ["total"]
    with pytest.raises(NoSuchKey):
        compared(shop, branch, "report@x", key=("id",))


def test_asked_refs_that_are_not_built_here_are_counted(shop: Shop, branch: World, place: Path) -> None:
    build(branch, place, "clean@x", id=[1])

    found = compared(shop, branch, "other@x", "clean@y")

    assert (found.counts, found.datasets, found.not_built) == ({}, [], 2)


def test_tainted_instances_of_either_side_are_named(shop: Shop, branch: World, place: Path) -> None:
    for ref in ("clean@x", "report@x"):
        build(branch, place, ref, id=[1])
    branch.taint("clean@x")
    shop.base.taint("report@x")

    found = compared(shop, branch)

    assert (found.tainted, found.tainted_in_base) == (["clean@x"], ["report@x"])


def test_a_side_that_cannot_be_read_is_named(shop: Shop, branch: World, place: Path, tmp_path: Path) -> None:
    build(branch, tmp_path / "lost", "clean@x", id=[1])
    (tmp_path / "lost").rename(tmp_path / "elsewhere")

    (partition,) = of(compared(shop, branch), "clean").partitions

    assert partition.outcome == "unknown"
    assert str(partition.note).startswith("After: ")


def test_a_ref_that_the_base_is_building_has_a_note(shop: Shop, branch: World, place: Path) -> None:
    build(branch, place, "clean@y", id=[1])
    shop.base.buffer("clean@y")

    (partition,) = of(compared(shop, branch), "clean").partitions

    assert (partition.outcome, partition.note) == ("new", "In the base it is building.")
