"""A gap report as a calendar: a row for each day, or for each month of days, and a mark for each lot.

A day of 5-minute lots is wider than most terminals, so a mark may stand for several lots in a row, and then it is that of
the worst of them. Days that look alike share a row.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import NamedTuple

from rich.console import Console
from rich.text import Text

from databuild_dagster.engine.gaps import GapCause, GapReport
from databuild_dagster.model.lots import LotRange, date_of, day_number

#: Rows that are drawn; the table beneath tells of the others.
MAX_ROWS = 62
#: Of a text that is not shown on a terminal.
PLAIN_WIDTH = 120


class Mark(NamedTuple):
    """How a lot is drawn, and what that means."""

    letter: str
    style: str
    told: str


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
    GapCause.DUE: Mark("d", "blue", GapCause.DUE),
    GapCause.WAITING: Mark("w", "blue", GapCause.WAITING),
    GapCause.BUILDING: Mark("B", "cyan", GapCause.BUILDING),
}
#: What stands for several lots is the first of these that is among them.
_WORST_FIRST = [*MARKS.values(), EMPTY, COMPLETE, OUTSIDE]
_PLACE = {mark: place for place, mark in enumerate(_WORST_FIRST)}


class _Row(NamedTuple):
    name: str
    marks: tuple[Mark, ...]


def calendar(report: GapReport, console: Console | None = None) -> None:
    """Print it: with colours on a terminal, as plain text elsewhere."""
    console = console or Console()
    if not console.is_terminal:
        console = Console(file=console.file, width=PLAIN_WIDTH, no_color=True)
    lots = report.expected.lots
    per_row = 31 if lots.unit.per_day == 1 else lots.unit.per_day
    names = len("2023-02-27 to 2023-03-01  ")
    per_mark = next(
        n for n in range(1, per_row + 1) if per_row % n == 0 and per_row // n <= max(console.width - names, 1)
    )
    by_day = dict(_marks(report))
    rows = list(_months(lots, by_day) if lots.unit.per_day == 1 else _days(lots, by_day, per_mark))
    drawn = [list(same) for _, same in groupby(rows, key=lambda row: row.marks)]
    for same in drawn[:MAX_ROWS]:
        name = same[0].name if len(same) == 1 else f"{same[0].name} to {same[-1].name}"
        line = Text(name.ljust(names) if any(len(each) > 1 for each in drawn) else f"{name}  ")
        for mark in same[0].marks:
            line.append(mark.letter, style=mark.style)
        line.rstrip()
        console.print(line, highlight=False, no_wrap=True, crop=False, overflow="ignore")
    if (more := sum(map(len, drawn[MAX_ROWS:]))) > 0:
        console.print(f"and {more} more rows", highlight=False)
    _legend(console, report, per_mark)


def _legend(console: Console, report: GapReport, per_mark: int) -> None:
    counts: Counter[Mark] = Counter(MARKS[each.cause] for each in report.absent)
    counts[EMPTY], counts[COMPLETE] = len(report.empty), report.n_present - len(report.empty)
    line = Text()
    for mark in _WORST_FIRST:
        if counts[mark]:
            line.append("   " if line else "").append(mark.letter, style=mark.style).append(
                f" {mark.told} {counts[mark]:,}"
            )
    console.print(line, highlight=False, no_wrap=True, crop=False, overflow="ignore")
    if per_mark > 1:
        console.print(f"A mark stands for {per_mark} lots, and is that of the worst of them.", highlight=False)


def _marks(report: GapReport) -> Iterator[tuple[int, Mark]]:
    """The mark of each expected lot, by its index."""
    lots, expected = report.expected.lots, set(report.expected.ids)
    empty = set(report.empty)
    absent = {each.lot: MARKS[each.cause] for each in report.absent}
    for index, lot in zip(range(lots.first, lots.stop), lots.ids(), strict=True):
        if lot in expected:
            yield index, absent.get(lot) or (EMPTY if lot in empty else COMPLETE)


def _days(lots: LotRange, marks: dict[int, Mark], per_mark: int) -> Iterator[_Row]:
    per_day = lots.unit.per_day
    for day in range(lots.first // per_day, -(-lots.stop // per_day)):
        of_day = [marks.get(index, OUTSIDE) for index in range(day * per_day, (day + 1) * per_day)]
        cells = (of_day[at : at + per_mark] for at in range(0, per_day, per_mark))
        year, month, day_of_month = date_of(day)
        yield _Row(f"{year:04}-{month:02}-{day_of_month:02}", tuple(map(_worst, cells)))


def _months(lots: LotRange, marks: dict[int, Mark]) -> Iterator[_Row]:
    year, month, _ = date_of(lots.first)
    while (first := day_number(year, month, 1)) < lots.stop:
        following = (year + month // 12, month % 12 + 1)
        days = range(first, day_number(*following, 1))
        yield _Row(f"{year:04}-{month:02}", tuple(marks.get(day, OUTSIDE) for day in days))
        year, month = following


def _worst(marks: Sequence[Mark]) -> Mark:
    return min(marks, key=_PLACE.__getitem__)
