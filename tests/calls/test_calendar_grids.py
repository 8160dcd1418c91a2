"""Which cells a grid of partitions has: one for each, or one for each day or month of many."""

from __future__ import annotations

import pytest

from databuild_dagster.calls import calendar
from databuild_dagster.calls.calendar import MAX_CELLS, Grid, GridShape, place_of

HOURS = [f"2024-{month:02}-{day:02}-{hour:02}" for month in range(1, 13) for day in range(1, 29) for hour in range(24)]


def titles(shape: GridShape) -> list[str]:
    return [cell["title"] for row in shape["rows"] for cell in row["cells"] if cell is not None]


def mark(key: str) -> str:
    return "failed" if key == "2024-02-03-04" else "live"


def test_a_grid_of_few_partitions_has_a_cell_for_each() -> None:
    shape = Grid("sales", ["2024-01-01", "2024-01-03"]).shape(lambda key: "live" if key.endswith("1") else "wanted")

    assert (shape["n"], shape["is_grouped"], shape["counts"]) == (2, False, {"live": 1, "wanted": 1})
    assert titles(shape) == ["2024-01-01", "2024-01-03"]


def test_an_unpartitioned_asset_has_one_cell() -> None:
    shape = Grid("sales", [""]).shape(lambda key: "live")

    assert [cell and (cell["title"], cell["ref"]) for cell in shape["rows"][0]["cells"]] == [("sales", "sales")]


def test_many_hours_are_grouped_by_the_day_with_the_worst_mark() -> None:
    shape = Grid("sales", HOURS).shape(mark)

    cells = {cell["title"]: cell for row in shape["rows"] for cell in row["cells"] if cell is not None}
    assert (shape["n"], shape["is_grouped"], len(cells)) == (len(HOURS), True, 12 * 28)
    assert (cells["2024-02-03"]["mark"], cells["2024-02-03"]["counts"]) == ("failed", {"live": 23, "failed": 1})
    assert shape["counts"] == {"live": len(HOURS) - 1, "failed": 1}


def test_a_part_of_a_grid_has_only_keys_that_begin_so() -> None:
    shape = Grid("sales", HOURS).shape(mark, within="2024-02-03")

    assert (shape["n"], shape["is_grouped"]) == (24, False)
    assert titles(shape) == [f"2024-02-03-{hour:02}" for hour in range(24)]


@pytest.mark.parametrize("keys", [[f"name {n:05}" for n in range(2_000)], HOURS[:2_000]], ids=["names", "hours"])
def test_partitions_that_cannot_be_grouped_come_in_pages(keys: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(calendar, "MAX_GROUPED", 1_999)
    grid = Grid("sales", keys)

    pages = [grid.shape(lambda key: "live", offset=offset) for offset in (0, MAX_CELLS, 9_000)]

    assert [title for page in pages for title in titles(page)] == keys
    assert [page["is_grouped"] for page in pages] == [False, False, False]


@pytest.mark.parametrize(
    ("text", "place"),
    [("b", 3), ("B1", 1), ("c", 4), ("a", 0), ("none", None)],
    ids=["a key", "its beginning", "a part of it", "the first of several", "none"],
)
def test_a_key_is_found_whole_by_its_beginning_or_by_a_part(text: str, place: int | None) -> None:
    assert place_of(["a", "b1", "b2", "b", "a-c"], text) == place
