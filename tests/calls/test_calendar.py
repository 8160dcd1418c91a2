"""Where a calendar has its cells, by the forms of partition keys."""

from __future__ import annotations

import pytest

from databuild_dagster.calls.calendar import CellShape, laid_out, level_of


def cells(*titles: str) -> list[CellShape]:
    return [{"title": title, "mark": "live", "n": 1, "ref": None, "counts": {}} for title in titles]


@pytest.mark.parametrize(
    ("titles", "rows", "first_columns"),
    [
        (["2024-01-30", "2024-01-31", "2024-02-01"], ["2024-01", "2024-02"], ["1", "2", "3"]),
        (["2023-12-01", "2024-01-01"], ["2023", "2024"], ["Jan", "Feb", "Mar"]),
        (["2023-12", "2024-01"], ["2023", "2024"], ["Jan", "Feb", "Mar"]),
        (["2023", "2024"], ["years"], ["2023", "2024"]),
        (
            ["2024-01-30-22:00", "2024-01-30-23:00", "2024-01-31-22:00"],
            ["2024-01-30", "2024-01-31"],
            ["22:00", "23:00"],
        ),
        (["de", "fr"], ["de"], []),
        (["whole"], ["whole"], []),
        (["2024-13-01", "2024-99-01"], ["2024-13-01"], []),
        (["2024-01-01", "2024-01-45"], ["2024-01-01"], []),
        (["2024-01-01", "2024-02"], ["2024-01-01"], []),
        (["2024-01-01-05", "2024-01-01:05"], ["2024-01-01-05"], []),
    ],
)
def test_rows_and_columns_follow_the_keys(titles: list[str], rows: list[str], first_columns: list[str]) -> None:
    columns, found = laid_out(cells(*titles))

    assert [row["title"] for row in found] == rows
    assert columns[: len(first_columns)] == first_columns
    shown = [cell["title"] for row in found for cell in row["cells"] if cell is not None]
    assert shown == titles


def test_the_parts_of_a_day_have_a_row_for_each_hour_if_they_are_many() -> None:
    times = [f"2024-01-30-{minute // 60:02}:{minute % 60:02}" for minute in range(0, 24 * 60, 5)]

    columns, rows = laid_out(cells(*times))

    assert (len(columns), len(rows), rows[1]["title"]) == (12, 24, "2024-01-30-01")


@pytest.mark.parametrize(
    ("keys", "n_within", "level"),
    [
        (["2024-01-30"], 0, 10),
        (["2024-01-30-10:00", "2024-01-30-11:00"], 0, 10),
        (["2024-01-30-10:00"], 10, None),
        (["de", "2024-01-30"], 0, None),
        (
            [f"{year:04}-{month:02}-{day:02}" for year in range(5) for month in range(1, 13) for day in range(1, 29)],
            0,
            7,
        ),
    ],
)
def test_the_level_of_groups_is_the_finest_that_fits(keys: list[str], n_within: int, level: int | None) -> None:
    assert level_of(keys, n_within) == level
