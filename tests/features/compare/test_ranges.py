"""Partitions are compared by their rows: with the instance before, or with what readers saw at a moment (rule 4.6)."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import date
from pathlib import Path

import pytest

from databuild_dagster.data.read_plan import Moment
from databuild_dagster.features.compare.ranges import NoSuchKey, PartitionDifference, Span, differences_of, summed
from tests.support.published import DAYS, DELTA, PublishedWorld

REFS = [f"sales@{day}" for day in DAYS]


@pytest.fixture
def sales(tmp_path: Path) -> Iterator[PublishedWorld]:
    world = PublishedWorld(tmp_path / "home", DELTA)
    yield world
    world.close()


def compared(world: PublishedWorld, then: Moment | None = None, *key: str) -> dict[str, PartitionDifference]:
    return {found.ref: found for found in differences_of(world.queries, REFS, then, key)}


def rebuilt(world: PublishedWorld, day: str, *, content_hash: str | None = None, **columns: list[object]) -> None:
    world.taint(f"sales@{day}")
    world.build(day, columns, content_hash=content_hash)


def now(world: PublishedWorld) -> Moment:
    return Moment(world.queries.events.head().seq)


def test_partitions_are_compared_with_the_instance_before_each(sales: PublishedWorld) -> None:
    for day in DAYS[:3]:
        sales.build(day, {"id": [1, 2], "amount": [10, 20]})
    rebuilt(sales, DAYS[0], id=[2, 1], amount=[20, 10])
    rebuilt(sales, DAYS[1], id=[1, 2], amount=[10, 21])

    found = compared(sales)

    assert [found[ref].outcome for ref in REFS] == ["equal", "different", "added", "missing"]
    assert [value.name for value in found[REFS[1]].values] == ["amount"]
    assert summed(found.values()).partitions == [found[REFS[1]], found[REFS[2]]]


def test_partitions_are_compared_with_what_readers_saw_at_a_moment(sales: PublishedWorld) -> None:
    sales.build(DAYS[0], {"id": [1]})
    sales.build(DAYS[1], {"id": [1]})
    then = now(sales)
    rebuilt(sales, DAYS[1], id=[1])
    rebuilt(sales, DAYS[1], id=[5])
    sales.build(DAYS[2], {"id": [1]})

    found = compared(sales, then)

    assert [found[ref].outcome for ref in REFS] == ["same", "different", "added", "missing"]


def test_a_key_tells_which_rows_were_added_removed_and_changed(sales: PublishedWorld) -> None:
    sales.build(
        DAYS[0], {"shop": ["a", "a", "b", "c"], "till": [1, 2, 1, 1], "sum": [5, 6, 7, 8], "by": [None, "x", "y", "z"]}
    )
    rebuilt(sales, DAYS[0], till=[1, 1, 2, 9], shop=["b", "a", "a", "d"], sum=[7, 5, 60, 1], by=["y", "new", "x", None])

    found = compared(sales, None, "shop", "till")[REFS[0]]

    assert (found.rows_a, found.rows_b) == (4, 4)
    assert (found.added, found.removed, found.changed) == (1, 1, 2)
    assert [(value.name, value.rows) for value in found.values] == [("sum", 1), ("by", 1)]


def test_columns_that_came_and_went_are_named_beside_the_values(sales: PublishedWorld) -> None:
    sales.build(DAYS[0], {"id": [1], "gone": [1], "amount": [1]})
    rebuilt(sales, DAYS[0], id=[1], amount=[1.0], new=["x"])

    found = compared(sales, None, "id")[REFS[0]]

    assert {(column.name, column.change) for column in found.columns} == {
        ("gone", "removed"),
        ("amount", "changed"),
        ("new", "added"),
    }
    assert found.changed == 1


def test_a_key_that_two_rows_share_is_said_and_compares_no_rows(sales: PublishedWorld) -> None:
    sales.build(DAYS[0], {"id": [1, 1, 2]})
    rebuilt(sales, DAYS[0], id=[1, 2])

    found = compared(sales, None, "id")[REFS[0]]

    assert found.outcome == "different"
    assert found.note is not None
    assert (found.added, found.rows_a, found.rows_b) == (None, 3, 2)


def test_a_key_that_is_no_column_is_refused_by_name(sales: PublishedWorld) -> None:
    sales.build(DAYS[0], {"id": [1]})
    rebuilt(sales, DAYS[0], id=[2])

    with pytest.raises(NoSuchKey) as refused:
        compared(sales, None, "number")

    assert refused.value.facts == {"ref": REFS[0], "column": "number"}


def test_a_key_that_came_with_the_change_is_said_for_the_partition_alone(sales: PublishedWorld) -> None:
    for day, columns in ((DAYS[0], {"n": [1]}), (DAYS[1], {"id": [1], "n": [1]})):
        sales.build(day, columns)
        rebuilt(sales, day, id=[1], n=[2])

    found = compared(sales, None, "id")

    assert (found[REFS[0]].note is None, found[REFS[0]].changed) == (False, None)
    assert found[REFS[1]].changed == 1


def test_another_order_of_columns_and_values_in_other_rows_are_said(sales: PublishedWorld) -> None:
    for day, columns in ((DAYS[0], {"id": [1], "n": [2]}), (DAYS[1], {"n": [1, 2], "id": [1, 2]})):
        sales.build(day, columns)
        rebuilt(sales, day, n=[2, 1][: len(columns["n"])], id=[1, 2][: len(columns["n"])])

    found = compared(sales)

    assert [(found[ref].outcome, found[ref].note is None) for ref in REFS[:2]] == [("different", False)] * 2
    assert found[REFS[0]].note != found[REFS[1]].note


def test_a_partition_that_failed_after_a_taint_has_lost_its_rows(sales: PublishedWorld) -> None:
    before = sales.build(DAYS[0], {"id": [1]})
    sales.taint(REFS[0])
    sales.fail_after_writing(DAYS[0], {"id": [2]})

    found = compared(sales)[REFS[0]]

    assert (found.outcome, found.a, found.b) == ("removed", before, None)


def test_a_partition_whose_files_are_gone_has_a_note_and_stops_nobody(sales: PublishedWorld) -> None:
    for day in DAYS[:2]:
        first = sales.build(day, {"id": [1]})
        rebuilt(sales, day, id=[2])
    for file in Path(sales.warehouse.root).rglob(f"*{first}*/*.parquet"):
        file.unlink()

    found = compared(sales)

    assert [found[ref].outcome for ref in REFS[:2]] == ["different", "unknown"]
    assert str(found[REFS[1]].note).startswith("Before: ")


def test_no_file_is_read_of_rows_that_are_equal_by_their_hashes(sales: PublishedWorld) -> None:
    first = [sales.build(day, {"id": [1]}, content_hash="arrow-1:1:0a") for day in DAYS[:3]]
    for day, content_hash in zip(DAYS, ("arrow-1:1:0a", "arrow-1:1:0b", "arrow-2:1:0a"), strict=False):
        rebuilt(sales, day, content_hash=content_hash, id=[2])
    for file in Path(sales.warehouse.root).rglob(f"*{first[0]}*/*.parquet"):
        file.unlink()

    found = compared(sales)

    assert [found[ref].outcome for ref in REFS] == ["equal", "different", "different", "missing"]
    assert [found[ref].by_hash for ref in REFS] == [True, False, False, False]


def test_no_file_is_read_where_manifests_list_the_same_bytes(sales: PublishedWorld) -> None:
    sales.build(DAYS[0], {"id": [1]}, {"id": [2, 3]})
    sales.build(DAYS[1], {"id": [1, 2, 3]})
    sales.taint(REFS[0])
    sales.build(DAYS[0], {"id": [2, 3]}, {"id": [1]})
    rebuilt(sales, DAYS[1], id=[3, 2, 1])
    for file in Path(sales.warehouse.root).rglob(f"*{sales.uuid(REFS[0])}*/*.parquet"):
        file.unlink()

    total = summed(compared(sales).values())

    assert (total.counts, total.by_hash) == ({"equal": 2, "missing": 2}, 1)
    assert total.sentence == "1 equal, 1 equal by hash, 2 missing"


def test_nulls_and_the_range_of_numbers_and_times_are_told_of_changed_columns(sales: PublishedWorld) -> None:
    old, new = date(2024, 1, 1), date(2024, 1, 2)
    sales.build(DAYS[0], {"id": [1, 2], "sum": [1.5, None], "at": [old, old], "name": ["ada", "bob"]})
    rebuilt(sales, DAYS[0], id=[1, 2], sum=[3.5, float("inf")], at=[old, new], name=["ada", None])

    values = {value.name: (value.a, value.b) for value in compared(sales)[REFS[0]].values}

    assert values == {
        "sum": (Span(1, 1.5, 1.5), Span(0, 3.5, "inf")),
        "at": (Span(0, "2024-01-01", "2024-01-01"), Span(0, "2024-01-01", "2024-01-02")),
        "name": (Span(0, None, None), Span(1, None, None)),
    }
