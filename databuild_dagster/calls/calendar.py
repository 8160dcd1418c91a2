"""The calendar of a dataset: a cell with a mark for each partition, or for each day or month of partitions.

A dataset of more than `MAX_CELLS` partitions is shown by the day, the month or the year; `within` opens a day, month or year. Keys
that begin with no date have no such levels, so they come in pages.
"""

import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cached_property
from typing import Final, NamedTuple, TypedDict

from databuild_dagster.bindings.registry.selections import OpenInstance
from databuild_dagster.calls.calendar_keys import keys_of, remembered
from databuild_dagster.model.datasets import DatasetSpec
from databuild_dagster.model.refs import Ref, make_ref
from databuild_dagster.model.states import InstanceState
from databuild_dagster.store.queries.canonical import MarkedRef
from databuild_dagster.store.queries.queries import Queries

#: Cells of an answer.
MAX_CELLS: Final = 1_500
#: Columns of partitions whose keys are no dates, and of parts of a day.
COLUMNS: Final = 30
MAX_COLUMNS: Final = 48
#: Of more partitions, a grid has pages and no groups: each group would cost a look at all of them.
MAX_GROUPED: Final = 150_000

_DAY = re.compile(r"[0-9]{4}-(0[1-9]|1[0-2])-(0[1-9]|[12][0-9]|3[01])")
_MONTH_OR_YEAR = re.compile(r"[0-9]{4}(-(0[1-9]|1[0-2]))?")
_MONTH, _YEAR = 7, 4
_LEVELS: Final = (10, _MONTH, _YEAR)
_MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")
_DAYS = tuple(str(day) for day in range(1, 32))


LIVE, EMPTY, STALE, TAINTED, PARTIAL = "live", "empty", "stale", "tainted", "partial"
BUILDING, WAITING, WANTED, MISSING = "building", "waiting", "wanted", "missing"
FAILED, UPSTREAM_FAILED = "failed", "upstream failed"

#: Every mark with its meaning, the worst first. A cell of several partitions has the worst mark among them.
MARKS: Final[Mapping[str, str]] = {
    FAILED: "its build failed for good",
    UPSTREAM_FAILED: "an input failed",
    TAINTED: "marked as wrong",
    STALE: "live, but an input was tainted or replaced since",
    WAITING: "waits for inputs or for its retry",
    BUILDING: "a job run builds it",
    WANTED: "wanted, and not begun",
    PARTIAL: "some of these partitions are live, the others are missing",
    MISSING: "nothing has built it",
    EMPTY: "live, on purpose without rows",
    LIVE: "good to read",
}
_WORST_FIRST: Final = tuple(MARKS)
_OF_STATE: Final[Mapping[InstanceState, str]] = {
    InstanceState.LIVE: LIVE,
    InstanceState.BUILDING: BUILDING,
    InstanceState.UPSTREAM_BUILDING: WAITING,
    InstanceState.UP_FOR_RETRY: WAITING,
    InstanceState.FAILED: FAILED,
    InstanceState.UPSTREAM_FAILED: UPSTREAM_FAILED,
    InstanceState.TAINTED: TAINTED,
}


class CellShape(TypedDict):
    """A partition, or several whose keys begin alike."""

    #: The partition key, or the beginning of several.
    title: str
    mark: str
    #: The number of partitions.
    n: int
    #: The partition; null for several.
    ref: Ref | None
    #: By mark; empty for a single partition.
    counts: dict[str, int]


class RowShape(TypedDict):
    """A row of cells; null where the calendar has no partition."""

    title: str
    cells: list[CellShape | None]


class GridShape(TypedDict):
    """Some partitions, or the part of them whose keys begin with `within`."""

    within: str
    #: The partitions of the part, and how many come before this page.
    n: int
    offset: int
    #: The partitions that the cells stand for, by mark.
    counts: dict[str, int]
    #: Whether a cell stands for several partitions.
    is_grouped: bool
    columns: list[str]
    rows: list[RowShape]


class CalendarShape(GridShape):
    """A dataset, or the part of it whose keys begin with `within`."""

    dataset: str
    #: The partition that `find` led to; null if there is none, or if none was looked for.
    found: Ref | None
    #: Whether it subscribes to other assets: the API has the arc.
    is_arc: bool


class _Place(NamedTuple):
    """The row and the column of a cell."""

    row: str
    column: str


def calendar_of(
    queries: Queries,
    dataset: DatasetSpec,
    instance: OpenInstance,
    now: float,
    *,
    within: str = "",
    offset: int = 0,
    find: str = "",
) -> CalendarShape:
    """The calendar of the partitions whose keys begin with `within`.

    With `find`, the page or the day with the first partition whose key is this text, begins with it, or contains it.
    """

    def part_of(within: str) -> _Part:
        every = keys_of(dataset, instance, now)
        return remembered(dataset, instance, now, f"within {within}", lambda: _part(every, within))

    place, found, counts = None, None, None
    if find:
        every = keys_of(dataset, instance, now)
        place = place_of(every, find.removeprefix(f"{dataset.asset}@"))
    if place is not None:
        found = every[place]
        within = _day_or_month(found or "") if part_of("").level is not None else ""
    keys, level, expected = part_of(within)
    if place is not None:
        offset = keys.index(found) // MAX_CELLS * MAX_CELLS
    if level is None:
        cells = _cells(queries, dataset.asset, keys[offset : offset + MAX_CELLS])
        if len(keys) > MAX_CELLS:
            (whole,) = _grouped(queries, dataset.asset, {within: len(keys)}, len(within))
            counts = whole["counts"]
    else:
        cells = _grouped(queries, dataset.asset, expected, level)
    grid = grid_of(cells, within, len(keys), offset, is_grouped=level is not None, counts=counts)
    ref = None if place is None else make_ref(dataset.asset, found)
    return {"dataset": dataset.asset, "found": ref, "is_arc": queries.datasets.is_arc(dataset.asset), **grid}


def place_of(keys: Sequence[str | None], text: str) -> int | None:
    """The place of the first key that is the text, else of the first that begins with it, else of the first with it inside."""
    if text in keys:
        return keys.index(text)
    wanted = text.casefold()
    places = [place for place, key in enumerate(keys) if wanted in (key or "").casefold()]
    return next(
        (place for place in places if (keys[place] or "").casefold().startswith(wanted)), next(iter(places), None)
    )


def _day_or_month(key: str) -> str:
    """The part of a calendar in which a key has a cell: a day with hours, or a month with days."""
    return key[: _LEVELS[0]] if len(key) > _LEVELS[0] else key[:_MONTH]


def grid_of(
    cells: Sequence[CellShape],
    within: str,
    n: int,
    offset: int,
    *,
    is_grouped: bool,
    counts: Mapping[str, int] | None = None,
) -> GridShape:
    """The cells of a part of `n` partitions in rows; groups have no pages. `counts` are those of the part if a page has less."""
    if counts is None:
        of_cells: Counter[str] = Counter()
        for cell in cells:
            of_cells.update(cell["counts"] or {cell["mark"]: 1})
        counts = of_cells
    columns, rows = laid_out(cells)
    return {
        "within": within,
        "n": n,
        "offset": 0 if is_grouped else offset,
        "counts": dict(counts),
        "is_grouped": is_grouped,
        "columns": columns,
        "rows": rows,
    }


def newest_cells(
    queries: Queries, datasets: Iterable[DatasetSpec], instance: OpenInstance, now: float, most: int
) -> dict[str, list[CellShape]]:
    """The last partitions of each dataset in the order of its definition."""
    keys = {spec.asset: keys_of(spec, instance, now)[-most:] for spec in datasets}
    marks = marks_of(queries, [make_ref(asset, key) for asset, of_asset in keys.items() for key in of_asset])
    return {
        asset: [_cell(asset, key, marks[make_ref(asset, key)]) for key in of_asset] for asset, of_asset in keys.items()
    }


class _Part(NamedTuple):
    """The partition keys of a part of a dataset, and how many begin alike if it is shown in groups."""

    keys: Sequence[str | None]
    #: The characters of the beginnings; None for a cell per partition.
    level: int | None
    expected: Mapping[str, int]


def _part(keys: tuple[str | None, ...], within: str) -> _Part:
    inside = tuple(key for key in keys if (key or "").startswith(within)) if within else keys
    level = None if len(inside) <= MAX_CELLS else level_of(inside, len(within))
    expected = {} if level is None else Counter((key or "")[:level] for key in inside)
    return _Part(inside, level, expected)


def _cells(queries: Queries, asset: str, keys: Sequence[str | None]) -> list[CellShape]:
    marks = marks_of(queries, [make_ref(asset, key) for key in keys])
    return [_cell(asset, key, marks[make_ref(asset, key)]) for key in keys]


def _cell(asset: str, key: str | None, mark: str) -> CellShape:
    return {"title": key or asset, "mark": mark, "n": 1, "ref": make_ref(asset, key), "counts": {}}


def level_of(keys: Sequence[str | None], n_within: int) -> int | None:
    """The characters of the finest groups that fit; None for keys that begin with no dates."""
    if not all(key is not None and _DAY.match(key) for key in keys):
        return None
    finest = (level for level in _LEVELS if len({(key or "")[:level] for key in keys}) <= MAX_CELLS)
    level = next(finest, _LEVELS[-1])
    return level if level > n_within else None


def _grouped(queries: Queries, asset: str, expected: Mapping[str, int], level: int) -> list[CellShape]:
    found: dict[str, Counter[str]] = {beginning: Counter() for beginning in expected}
    for group in queries.canonical.marked_groups(asset, level):
        if group.beginning in found:
            found[group.beginning][mark_of_state(group.state, is_wanted=group.is_wanted)] += group.n
    for beginning, n in expected.items():
        found[beginning][MISSING] += max(0, n - found[beginning].total())
    return [_cell_of_group(beginning, expected[beginning], counts) for beginning, counts in found.items()]


def _cell_of_group(beginning: str, n: int, counts: Mapping[str, int]) -> CellShape:
    named = {mark: n_marked for mark, n_marked in counts.items() if n_marked}
    return {"title": beginning, "mark": mark_of_many(counts), "n": n, "ref": None, "counts": named}


def laid_out(cells: Sequence[CellShape]) -> tuple[list[str], list[RowShape]]:
    """The titles of the columns, and the rows, of cells in their order."""
    titles = [cell["title"] for cell in cells]
    places, columns = _dated(titles) if _are_dated(titles) else _in_order(titles)
    if len(set(places)) < len(titles):
        places, columns = _in_order(titles)
    rows: dict[str, dict[str, CellShape]] = {}
    for place, cell in zip(places, cells, strict=True):
        rows.setdefault(place.row, {})[place.column] = cell
    names = columns or list(dict.fromkeys(place.column for place in places))
    return columns, [{"title": title, "cells": [of_row.get(name) for name in names]} for title, of_row in rows.items()]


def _are_dated(titles: Sequence[str]) -> bool:
    """Whether all are years, all are months, all are days, or all begin with a day."""
    kinds = {min(len(title), _LEVELS[0] + 1) for title in titles}
    return len(kinds) == 1 and all(_DAY.match(title) or _MONTH_OR_YEAR.fullmatch(title) for title in titles)


def _dated(titles: Sequence[str]) -> tuple[list[_Place], list[str]]:
    longest = max(map(len, titles))
    if longest == _YEAR:
        return [_Place("years", title) for title in titles], list(dict.fromkeys(titles))
    if longest == _MONTH or (longest == _LEVELS[0] and len(titles) > 1 and all(t.endswith("-01") for t in titles)):
        return [_Place(title[:_YEAR], _MONTHS[int(title[5:7]) - 1]) for title in titles], list(_MONTHS)
    if longest == _LEVELS[0]:
        return [_Place(title[:_MONTH], str(int(title[8:10]))) for title in titles], list(_DAYS)
    n_characters = next(
        n for n in (10, 13, longest) if n == longest or len({title[n:] for title in titles}) <= MAX_COLUMNS
    )
    columns = sorted({title[n_characters:] for title in titles})
    shown = {column: column.lstrip("-:") or column for column in columns}
    return [_Place(title[:n_characters], shown[title[n_characters:]]) for title in titles], list(shown.values())


def _in_order(titles: Sequence[str]) -> tuple[list[_Place], list[str]]:
    """Rows of partitions whose keys are no dates, each named by its first key."""
    first = [titles[place - place % COLUMNS] for place in range(len(titles))]
    places = [_Place(title, str(place % COLUMNS)) for place, title in enumerate(first)]
    return places, []


def mark_of_state(state: InstanceState | None, *, is_wanted: bool) -> str:
    """The mark of a ref, as far as its state says."""
    if state is None:
        return WANTED if is_wanted else MISSING
    return _OF_STATE[state]


def marks_of(queries: Queries, refs: Iterable[Ref]) -> dict[Ref, str]:
    """The mark of each ref."""
    named = list(refs)
    marked = queries.canonical.marked(named)
    live = [found.uuid for found in marked if found.state is InstanceState.LIVE and found.uuid is not None]
    stale = queries.instances.stale(live) if live else set()
    return dict.fromkeys(named, MISSING) | {found.ref: _mark(found, stale) for found in marked}


def _mark(found: MarkedRef, stale: set[str]) -> str:
    if found.uuid in stale:
        return STALE
    if found.state is InstanceState.LIVE and found.manifest_state == "empty":
        return EMPTY
    return mark_of_state(found.state, is_wanted=found.is_wanted)


def mark_of_many(counts: Mapping[str, int]) -> str:
    """The mark of a cell that stands for several partitions."""
    marks = {mark for mark, n in counts.items() if n}
    if marks & {LIVE, EMPTY} and MISSING in marks and marks <= {LIVE, EMPTY, MISSING}:
        return PARTIAL
    return next((mark for mark in _WORST_FIRST if mark in marks), MISSING)


class Grid:
    """The partitions of an asset; the caller knows their marks, which change."""

    def __init__(self, asset: str, keys: Iterable[str]) -> None:
        self._asset = asset
        self._keys = list(keys)

    def shape(self, mark_of: Callable[[str], str], *, within: str = "", offset: int = 0) -> GridShape:
        """The cells of a part: a cell for each partition, or for each group of partitions if they are too many."""
        keys = [key for key in self._keys if key.startswith(within)] if within else self._keys
        level = self._level if not within else _level(keys, len(within))
        if level is None:
            cells = [_cell(self._asset, key or None, mark_of(key)) for key in keys[offset : offset + MAX_CELLS]]
        else:
            cells = _grouped_by_mark(keys, level, mark_of)
        return grid_of(cells, within, len(keys), offset, is_grouped=level is not None)

    @cached_property
    def _level(self) -> int | None:
        return _level(self._keys, 0)


def _level(keys: list[str], n_within: int) -> int | None:
    return level_of(keys, n_within) if MAX_CELLS < len(keys) <= MAX_GROUPED else None


def _grouped_by_mark(keys: list[str], level: int, mark_of: Callable[[str], str]) -> list[CellShape]:
    groups: dict[str, dict[str, int]] = {}
    beginnings = (key[:level] for key in keys)
    for (beginning, mark), n in Counter(zip(beginnings, map(mark_of, keys), strict=True)).items():
        groups.setdefault(beginning, {})[mark] = n
    return [_cell_of_group(beginning, sum(counts.values()), counts) for beginning, counts in groups.items()]
