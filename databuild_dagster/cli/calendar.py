"""A gap report as a calendar: a row for each day, or for each month of days, and a mark for each lot.

A day of 5-minute lots is wider than most terminals, so a mark may stand for several lots in a row; where some of them are
present, it says how many tenths, in the colour of the worst of them. Days that look alike share a row; where rows would be
too many all the same, so many days in a row do, however they look.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import NamedTuple

from rich.console import Console
from rich.text import Text

from databuild_dagster.engine.why.gaps import GapCause, GapReport
from databuild_dagster.model.lots import LotRange, date_of, day_number

#: Rows that are drawn.
MAX_ROWS = 62
#: Days, or months of days, that share a row: the first of these that is enough, or a multiple of the last.
_ROWS_TOGETHER = (1, 7, 14, 28, 56, 112, 224, 448)
_MONTHS_TOGETHER = (1, 3, 6, 12, 24, 60, 120)
MONTH_DAYS = 31
#: Of a text that is not shown on a terminal.
PLAIN_WIDTH = 120


class Mark(NamedTuple):
    """How a lot is drawn, and what that means."""

    letter: str
    style: str
    label: str


COMPLETE, EMPTY, OUTSIDE = Mark("=", "green", "complete"), Mark("o", "cyan", "empty"), Mark(" ", "", "not expected")
MARKS = {
    GapCause.FAILED: Mark("F", "bold red", GapCause.FAILED),
    GapCause.FAILED_UPSTREAM: Mark("f", "red", GapCause.FAILED_UPSTREAM),
    GapCause.NEVER_ARRIVED: Mark("?", "bold yellow", GapCause.NEVER_ARRIVED),
    GapCause.EXPIRED: Mark("x", "yellow", GapCause.EXPIRED),
    GapCause.WANT_ENDED: Mark("c", "yellow", GapCause.WANT_ENDED),
    GapCause.NEVER_WANTED: Mark(".", "yellow", GapCause.NEVER_WANTED),
    GapCause.TAINTED: Mark("T", "magenta", GapCause.TAINTED),
    GapCause.BACKING_OFF: Mark("r", "yellow", GapCause.BACKING_OFF),
    GapCause.PAUSED: Mark("p", "yellow", GapCause.PAUSED),
    GapCause.DUE: Mark("d", "blue", GapCause.DUE),
    GapCause.WAITING: Mark("w", "blue", GapCause.WAITING),
    GapCause.BUILDING: Mark("B", "cyan", GapCause.BUILDING),
}
#: What stands for several lots is the first of these that is among them.
_WORST_FIRST = [*MARKS.values(), EMPTY, COMPLETE, OUTSIDE]
_PRESENT = frozenset({EMPTY, COMPLETE})
_PLACE = {mark: place for place, mark in enumerate(_WORST_FIRST)}


#: The least that is there of a cell, and the most of what is not complete.
_TENTHS = range(1, 10)


class _Row(NamedTuple):
    """Of each cell the marks of its lots."""

    first: str
    last: str
    cells: Sequence[Sequence[Mark]]


def calendar(report: GapReport, console: Console | None = None) -> None:
    """Print it: with colours on a terminal, as plain text elsewhere."""
    console = console or Console()
    if not console.is_terminal:
        console = Console(file=console.file, width=PLAIN_WIDTH, no_color=True)
    lots = report.expected.lots
    per_row = MONTH_DAYS if lots.unit.per_day == 1 else lots.unit.per_day
    names = len("2023-02-27 to 2023-03-01  ")
    per_mark = next(
        n for n in range(1, per_row + 1) if per_row % n == 0 and per_row // n <= max(console.width - names, 1)
    )
    marks = dict(_marks(report))
    if lots.unit.per_day == 1:
        drawn, together = _fitting(list(_months(lots, marks)), _MONTHS_TOGETHER)
    else:
        drawn, together = _fitting(list(_days(lots, marks, per_mark)), _ROWS_TOGETHER)
    is_long = any(first != last for (first, last), _ in drawn)
    for (first, last), cells in drawn:
        name = first if first == last else f"{first} to {last}"
        line = Text(name.ljust(names) if is_long else f"{name}  ")
        for mark in cells:
            line.append(mark.letter, style=mark.style)
        line.rstrip()
        console.print(line, highlight=False, no_wrap=True, crop=False, overflow="ignore")
    _legend(console, report, per_mark * together)


def _fitting(rows: Sequence[_Row], together: Sequence[int]) -> tuple[list[tuple[tuple[str, str], list[Mark]]], int]:
    """The rows to draw, each with its first and last name, and how many were put together to each of them."""
    for n in (*together, *(together[-1] * times for times in range(2, len(rows) + 2))):
        merged = rows if n == 1 else [_together(rows[at : at + n]) for at in range(0, len(rows), n)]
        label = [(row, [_mark_of(cell) for cell in row.cells]) for row in merged]
        alike = [list(same) for _, same in groupby(label, key=lambda row: row[1])]
        if len(alike) <= MAX_ROWS:
            return [((same[0][0].first, same[-1][0].last), same[0][1]) for same in alike], n
    raise AssertionError("all rows fit into one")


def _together(rows: Sequence[_Row]) -> _Row:
    cells = [[mark for cell in of_rows for mark in cell] for of_rows in zip(*(row.cells for row in rows), strict=True)]
    return _Row(rows[0].first, rows[-1].last, cells)


def _legend(console: Console, report: GapReport, per_mark: int) -> None:
    counts: Counter[Mark] = Counter(MARKS[gap.cause] for gap in report.absent)
    counts[EMPTY], counts[COMPLETE] = len(report.empty), report.n_present - len(report.empty)
    line = Text()
    for mark in _WORST_FIRST:
        if counts[mark]:
            line.append("   " if line else "").append(mark.letter, style=mark.style).append(
                f" {mark.label} {counts[mark]:,}"
            )
    console.print(line, highlight=False, no_wrap=True, crop=False, overflow="ignore")
    if per_mark > 1:
        console.print(
            f"A mark stands for {per_mark} lots; a digit says how many tenths of them are present.", highlight=False
        )


def _marks(report: GapReport) -> Iterator[tuple[int, Mark]]:
    """The mark of each expected lot, by its index."""
    lots = report.expected.lots
    marks = dict.fromkeys(report.expected.ids, COMPLETE)
    marks.update(dict.fromkeys(report.empty, EMPTY))
    marks.update({gap.lot: MARKS[gap.cause] for gap in report.absent})
    for index, lot in zip(range(lots.first, lots.stop), lots.ids(), strict=True):
        if lot in marks:
            yield index, marks[lot]


def _days(lots: LotRange, marks: dict[int, Mark], per_mark: int) -> Iterator[_Row]:
    per_day = lots.unit.per_day
    for day in range(lots.first // per_day, -(-lots.stop // per_day)):
        of_day = [marks.get(index, OUTSIDE) for index in range(day * per_day, (day + 1) * per_day)]
        year, month, day_of_month = date_of(day)
        name = f"{year:04}-{month:02}-{day_of_month:02}"
        yield _Row(name, name, [of_day[at : at + per_mark] for at in range(0, per_day, per_mark)])


def _months(lots: LotRange, marks: dict[int, Mark]) -> Iterator[_Row]:
    year, month, _ = date_of(lots.first)
    while (first := day_number(year, month, 1)) < lots.stop:
        following = (year + month // 12, month % 12 + 1)
        days = range(first, day_number(*following, 1))
        name = f"{year:04}-{month:02}"
        cells = [[marks.get(day, OUTSIDE)] for day in days]
        yield _Row(name, name, cells + [[OUTSIDE]] * (MONTH_DAYS - len(cells)))
        year, month = following


def _mark_of(cell: Sequence[Mark]) -> Mark:
    """That of the worst, but for a cell of which some lots are present."""
    kinds = set(cell)
    worst = min(kinds, key=_PLACE.__getitem__)
    if len(kinds) == 1 or worst in _PRESENT:
        return worst
    n_present, n_expected = cell.count(EMPTY) + cell.count(COMPLETE), len(cell) - cell.count(OUTSIDE)
    if not n_present:
        return worst
    tenths = min(max(10 * n_present // n_expected, _TENTHS[0]), _TENTHS[-1])
    return Mark(str(tenths), worst.style, worst.label)
