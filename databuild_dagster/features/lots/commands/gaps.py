"""`databuild lot gaps DATASET`: which lots of a range are missing, and why, as a picture, a table and JSON (rule 10.7).

The picture is a calendar: a row for each day, a month of days, a year of weeks or months; and a mark for each lot. A mark's place
in its row is the time since midnight, the day of the month, or the week or month of the year, in the time zone of the
partitions. A day on which the clock changes has as many marks as it has lots.

A day of 5-minute lots is wider than most terminals, so a mark may stand for several lots in a row; where some of them are
present, it says how many tenths, in the colour of the worst of them. Days that look alike share a row; where rows would be
too many all the same, so many days in a row do, however they look.
"""

import math
from collections import Counter
from collections.abc import Sequence
from datetime import date, datetime, time
from enum import Enum
from itertools import groupby
from typing import NamedTuple
from zoneinfo import ZoneInfo

import click
from rich.console import Console
from rich.text import Text

from databuild_dagster.cli.options import tabular
from databuild_dagster.cli.output import count, emit, table
from databuild_dagster.cli.state import the_engine
from databuild_dagster.engine.wording import json_of
from databuild_dagster.features.lots.gap_ranges import Stretch, gaps_of_dataset, stretches_of, when_of_lot
from databuild_dagster.features.lots.gaps import GapCause, GapReport, gap_report
from databuild_dagster.model.lots import DAY_SECONDS, Cadence, Expected, InvalidLotRange
from databuild_dagster.model.wording import few_of

#: Stretches of absent lots that the table for people has; a program gets every lot.
MAX_STRETCHES = 40


@click.command("gaps")
@click.argument("dataset")
@click.option(
    "--from",
    "start",
    metavar="TIME|KEY|LOT",
    help="Start of the range: a lot id, a partition key or a time. Default: where the partitions begin.",
)
@click.option(
    "--to",
    "end",
    metavar="TIME|KEY|LOT",
    help="End of the range, exclusive: a lot id, a partition key or a time. Default: where the partitions end.",
)
@click.option("--chain", is_flag=True, help="Also report on every dataset upstream of DATASET.")
@tabular
def gaps(dataset: str, start: str | None, end: str | None, chain: bool, as_json: bool) -> None:
    """Show which lots of DATASET are missing, and why.

    Both ends are rounded down to the beginning of a lot. A day is a day of the partitions' time zone. The report follows waits,
    failures and absent sources of arcs upstream to their first cause. With --chain it also follows lots that no want asks for, to the
    missing input.
    """
    reports, without = _reports(dataset, start, end, chain=chain)
    if as_json:
        of_chain = {"chain": [gaps_of_dataset(of_input) for of_input in reports[:-1]], "without_lots": list(without)}
        emit({**json_of(gaps_of_dataset(reports[-1])), **(of_chain if chain else {})})
        return
    for number, report in enumerate(reports):
        if number:
            click.echo()
        _print(report)
    if without:
        click.echo(f"Left out, for having no lots: {few_of(without)}.")


def _reports(
    asset: str, start: str | None, end: str | None, *, chain: bool
) -> tuple[Sequence[GapReport], Sequence[str]]:
    """The requested report is the last. Raises `UnknownAsset`, `NoLots`, `NoLotKey`, `InvalidTime`, `InvalidLotRange`."""
    from databuild_dagster.bindings.registry.window_keys import lots_of, moment_of
    from databuild_dagster.features.lots.gap_ranges import chain_in_range

    engine = the_engine()
    spec = engine.queries.datasets.known(asset)
    lots = lots_of(spec)
    since, until = moment_of("--from", start, lots), moment_of("--to", end, lots)
    if since is not None and until is not None and since > until:
        raise InvalidLotRange(start=start, end=end, why="--from comes after --to")
    asked = lots.expected(engine.clock(), since, until)
    if not chain:
        return [gap_report(engine, asked)], ()

    return chain_in_range(engine, spec, asked)


def _print(report: GapReport) -> None:
    expected = report.expected
    cadence = expected.cadence
    click.echo(
        f"{click.style(report.asset, bold=True)}  {count(report.n_expected, 'lot')} of {cadence} expected from "
        f"{when_of_lot(expected.start, cadence)} to {when_of_lot(expected.end, cadence)}: {report.n_present:,} present "
        f"({len(report.empty):,} of them empty), {len(report.absent):,} absent."
    )
    if expected.n_outside:
        text = count(expected.n_outside, "lot of the range is", "lots of the range are")
        click.echo(f"{text} not expected: before the first partition, after the last, or not over yet.")
    if report.n_expected:
        calendar(report)
    if not report.absent:
        return
    stretches = list(stretches_of(report))
    few = stretches[:MAX_STRETCHES]
    rows = [(found.name, len(found.lots), found.lots[0].shown, _first_causes(found)) for found in few]
    table(("lots", "n", "cause", "first cause"), rows, empty="")
    if (more := stretches[MAX_STRETCHES:]) != []:
        n = sum(len(stretch.lots) for stretch in more)
        click.echo(f"and {count(n, 'more lot')} in {count(len(more), 'stretch', 'stretches')}; --json lists each")


def _first_causes(stretch: Stretch) -> str:
    others = f" (and {count(stretch.n_others, 'other')} like it)" if stretch.n_others else ""
    return stretch.first_cause + others


#: Rows that are drawn.
MAX_ROWS = 62
#: Letters of a row's name, with two spaces.
NAMES = len("2023-02-27 to 2023-03-01  ")
#: Of a text that is not shown on a terminal.
PLAIN_WIDTH = 120


class Kind(Enum):
    """What a row of the calendar is."""

    DAY = "day"
    MONTH = "month of days"
    WEEKS = "year of weeks"
    YEAR = "year of months"
    DECADE = "decade of years"


#: Units that share a row: the first number that is enough, or a multiple of the last.
_YEARS_TOGETHER = (1, 2, 5, 10, 20, 50)
_TOGETHER = {
    Kind.DAY: (1, 7, 14, 28, 56, 112, 224, 448),
    Kind.MONTH: (1, 3, 6, 12, 24, 60, 120),
    Kind.WEEKS: _YEARS_TOGETHER,
    Kind.YEAR: _YEARS_TOGETHER,
    Kind.DECADE: _YEARS_TOGETHER,
}
#: Places of a row. A year of 366 days that begins with a week has lots in 53 of them.
_WIDTH = {Kind.MONTH: 31, Kind.WEEKS: 53, Kind.YEAR: 12, Kind.DECADE: 10}
#: The longest lots of each kind, in days: a day may have 25 hours, a month has 28 days at least.
_LONGEST = {Kind.DAY: 0.9, Kind.MONTH: 6.5, Kind.WEEKS: 27, Kind.YEAR: 360}


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
    GapCause.NO_SOURCE: Mark("s", "yellow", GapCause.NO_SOURCE),
    GapCause.NEVER_WANTED: Mark(".", "yellow", GapCause.NEVER_WANTED),
    GapCause.TAINTED: Mark("T", "magenta", GapCause.TAINTED),
    GapCause.BACKING_OFF: Mark("r", "yellow", GapCause.BACKING_OFF),
    GapCause.PAUSED: Mark("p", "yellow", GapCause.PAUSED),
    GapCause.DUE: Mark("d", "blue", GapCause.DUE),
    GapCause.WAITING: Mark("w", "blue", GapCause.WAITING),
    GapCause.BUILDING: Mark("B", "cyan", GapCause.BUILDING),
}
#: The mark of several lots is the first in this order that any of them has.
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
    rows, per_mark = _rows(report, max(console.width - NAMES, 1))
    drawn, together = _fitting(rows, _TOGETHER[_kind_of(report.expected.cadence)])
    is_long = any(first != last for (first, last), _ in drawn)
    for (first, last), cells in drawn:
        name = first if first == last else f"{first} to {last}"
        line = Text(name.ljust(NAMES) if is_long else f"{name}  ")
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
        console.print(f"A mark is {per_mark} lots; a digit is the number of tenths that are present.", highlight=False)


def _marks(report: GapReport) -> list[Mark]:
    """The mark of each expected lot, in order."""
    marks = dict.fromkeys(report.expected.ids, COMPLETE)
    marks.update(dict.fromkeys(report.empty, EMPTY))
    marks.update({gap.lot: MARKS[gap.cause] for gap in report.absent})
    return list(marks.values())


def _kind_of(cadence: Cadence) -> Kind:
    days = cadence.seconds / DAY_SECONDS
    return next((kind for kind, longest in _LONGEST.items() if days < longest), Kind.DECADE)


def _rows(report: GapReport, room: int) -> tuple[list[_Row], int]:
    """Every row from the first lot to the last, and how many places of a row share a mark."""
    cadence = report.expected.cadence
    kind = _kind_of(cadence)
    places = _places_in_days(report.expected) if kind is Kind.DAY else _places_in_months(report.expected, kind)
    usual = max(round(DAY_SECONDS / cadence.seconds), 1) if kind is Kind.DAY else _WIDTH[kind]
    width = max(usual, 1 + max(place for _, place in places))
    # Places of a day share a mark by whole hours if they can; a month of 31 days has no such divisor.
    sizes = [n for n in range(1, width + 1) if kind is not Kind.DAY or usual % n == 0] + [width]
    per_mark = next(n for n in sizes if -(-width // n) <= room or n == width)
    first, last = places[0][0], places[-1][0]
    cells: list[list[list[Mark]]] = [[[] for _ in range(-(-width // per_mark))] for _ in range(first, last + 1)]
    for (row, place), mark in zip(places, _marks(report), strict=True):
        cells[row - first][place // per_mark].append(mark)
    names = [_name(kind, row) for row in range(first, last + 1)]
    rows = [_Row(name, name, [cell or [OUTSIDE] for cell in of_row]) for name, of_row in zip(names, cells, strict=True)]
    return rows, per_mark


def _places_in_days(expected: Expected) -> list[tuple[int, int]]:
    """Of each lot the day, counted, and the lots that fit between its midnight and its start."""
    seconds, zone = expected.cadence.seconds, ZoneInfo(expected.cadence.timezone)
    places: list[tuple[int, int]] = []
    day, midnight, next_midnight = 0, 0.0, -math.inf
    for start in expected.starts:
        if start >= next_midnight:
            day = datetime.fromtimestamp(start, zone).toordinal()
            midnight, next_midnight = (_midnight(number, zone) for number in (day, day + 1))
        places.append((day, int((start - midnight) // seconds)))
    return places


def _midnight(day: int, zone: ZoneInfo) -> float:
    return datetime.combine(date.fromordinal(day), time(), zone).timestamp()


def _places_in_months(expected: Expected, kind: Kind) -> list[tuple[int, int]]:
    """Of each lot the month, year or decade, counted, and its place in that."""
    zone = ZoneInfo(expected.cadence.timezone)
    places = []
    for start in expected.starts:
        at = datetime.fromtimestamp(start, zone)
        match kind:
            case Kind.MONTH:
                places.append((at.year * 12 + at.month - 1, at.day - 1))
            case Kind.WEEKS:
                places.append((at.year, (at.timetuple().tm_yday - 1) // 7))
            case Kind.YEAR:
                places.append((at.year, at.month - 1))
            case _:
                places.append((at.year // 10, at.year % 10))
    return places


def _name(kind: Kind, row: int) -> str:
    match kind:
        case Kind.DAY:
            return date.fromordinal(row).isoformat()
        case Kind.MONTH:
            return f"{row // 12:04}-{row % 12 + 1:02}"
        case Kind.DECADE:
            return f"{row * 10:04}s"
        case _:
            return f"{row:04}"


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
