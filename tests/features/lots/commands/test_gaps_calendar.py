"""The calendar that `databuild lot gaps` draws: a mark for each lot, or for several, and one row for each day or month (rule 10.7)."""

from __future__ import annotations

import io
from datetime import UTC, datetime

import dagster as dg
from rich.console import Console

from databuild_dagster.bindings.registry.window_keys import WindowKeys
from databuild_dagster.features.lots.commands.gaps import MARKS, MAX_ROWS, calendar
from databuild_dagster.features.lots.gaps import Absent, GapCause, GapReport
from databuild_dagster.model.lots import UNITS, Cadence, Expected, LotUnit, lots_between


def drawn(
    unit: LotUnit,
    start: str,
    end: str,
    absent: dict[str, GapCause] | None = None,
    *,
    terminal: bool = False,
    width: int = 80,
) -> list[str]:
    since, until = (datetime.fromisoformat(item).replace(tzinfo=UTC).timestamp() for item in (start, end))
    lots = lots_between(since, until, unit)
    ids = list(lots.ids())
    starts = [lot.start for lot in lots]
    expected = Expected("a", Cadence(unit.token, unit.seconds), lots.start, lots.end, ids, ids, starts)
    console = Console(file=io.StringIO(), force_terminal=terminal, width=width, color_system="standard")
    return lines_of(expected, absent or {}, console)


def drawn_windows(partitions: dg.TimeWindowPartitionsDefinition, absent: dict[str, GapCause]) -> list[str]:
    expected = WindowKeys("a", partitions).expected(datetime(2026, 1, 1, tzinfo=UTC).timestamp())
    return lines_of(expected, absent, Console(file=io.StringIO()))


def lines_of(expected: Expected, absent: dict[str, GapCause], console: Console) -> list[str]:
    found = [Absent(lot, "a@x", cause, None, "a@x", cause, "so it is") for lot, cause in absent.items()]
    calendar(GapReport(expected, (expected.ids[0],), tuple(found)), console)
    return str(console.file.getvalue()).splitlines()  # type: ignore[attr-defined]


def test_a_day_is_a_row_and_a_lot_is_a_mark() -> None:
    lines = drawn(UNITS["PT1H"], "2024-02-28T02:00", "2024-03-01T03:00", {"20240228PT1H003": GapCause.FAILED})

    assert lines == [
        "2024-02-28    oF====================",
        "2024-02-29  ========================",
        "2024-03-01  ===",
        "F failed 1   o empty 1   = complete 47",
    ]


def test_a_mark_for_several_lots_says_how_many_tenths_are_present() -> None:
    absent = dict.fromkeys((f"20240228PT5M{number:03}" for number in (7, 8, 9, 10, 12, 13, 14, 15)), GapCause.BUILDING)

    lines = drawn(UNITS["PT5M"], "2024-02-28", "2024-02-29", absent)

    assert lines == [
        "2024-02-28  o72B" + 68 * "=",
        "B building 8   o empty 1   = complete 279",
        "A mark is 4 lots; a digit is the number of tenths that are present.",
    ]


def test_days_are_drawn_by_months() -> None:
    lines = drawn(UNITS["P1D"], "2024-01-30", "2024-03-02", {"20240229P1D000": GapCause.WAITING})

    assert lines[:3] == ["2024-01  " + 29 * " " + "o=", "2024-02  " + 28 * "=" + "w", "2024-03  ="]


def test_a_terminal_has_colours_and_its_width_is_kept() -> None:
    lines = drawn(UNITS["PT5M"], "2024-02-28", "2024-02-29", terminal=True, width=60)

    assert "\x1b[32m" in lines[0]
    assert lines[0].count("=") <= 60


def test_sixty_years_of_days_fit_as_well() -> None:
    odd = {f"{year}{month:02}15P1D000": GapCause.FAILED for year in range(1970, 2030) for month in range(1, 13, 2)}

    lines = drawn(UNITS["P1D"], "1970-01-01", "2030-01-01", odd)

    assert len(lines) <= MAX_ROWS + 2
    assert lines[0].startswith("1970-01 to ")
    assert "to 2029-12  " in lines[-3]


def test_a_day_has_as_many_marks_as_hours_where_the_clock_changes() -> None:
    autumn = dg.HourlyPartitionsDefinition("2024-10-26-22:00", end_date="2024-10-29-00:00", timezone="Europe/Berlin")
    spring = dg.HourlyPartitionsDefinition("2024-03-31-00:00", end_date="2024-04-02-00:00", timezone="Europe/Berlin")

    assert drawn_windows(autumn, {"2024-10-27-02:00+0100": GapCause.FAILED}) == [
        "2024-10-26  " + 22 * " " + "o=",
        "2024-10-27  ===F" + 21 * "=",
        "2024-10-28  " + 24 * "=",
        "F failed 1   o empty 1   = complete 49",
    ]
    assert drawn_windows(spring, {"2024-03-31-03:00": GapCause.FAILED})[:2] == [
        "2024-03-31  o=F" + 20 * "=",
        "2024-04-01  " + 24 * "=",
    ]


def test_weeks_and_months_are_drawn_by_years_and_years_by_decades() -> None:
    weeks = dg.WeeklyPartitionsDefinition("2023-12-01", end_date="2025-01-05")
    months = dg.MonthlyPartitionsDefinition("2023-11-01", end_date="2025-03-01", day_offset=15)
    quarters = dg.TimeWindowPartitionsDefinition("2024-01", "%Y-%m", "2025-01", cron_schedule="0 0 1 */3 *")
    years = dg.TimeWindowPartitionsDefinition("2008", "%Y", "2022", cron_schedule="0 0 1 1 *")

    assert drawn_windows(weeks, {"2024-01-14": GapCause.DUE})[:2] == [
        "2023  " + 48 * " " + "o====",
        "2024  =d" + 50 * "=",
    ]
    assert drawn_windows(months, {"2024-02-15": GapCause.DUE})[:3] == [
        "2023            o=",
        "2024  =d==========",
        "2025  =",
    ]
    assert drawn_windows(quarters, {"2024-07": GapCause.DUE})[0] == "2024  o  =  d  ="
    assert drawn_windows(years, {"2019": GapCause.DUE})[:3] == ["2000s          o=", "2010s  =========d", "2020s  =="]


def test_a_schedule_of_working_days_leaves_its_weekends_empty() -> None:
    shifts = dg.TimeWindowPartitionsDefinition(
        "2024-02-01-00:00", "%Y-%m-%d-%H:%M", "2024-02-06-09:00", cron_schedule="0 9,17 * * 1-5"
    )

    assert drawn_windows(shifts, {"2024-02-05-09:00": GapCause.FAILED})[:4] == [
        "2024-02-01                 o=",
        "2024-02-02                 ==",
        "2024-02-03 to 2024-02-04",
        "2024-02-05                 F=",
    ]


def test_every_cause_has_a_letter_of_its_own() -> None:
    assert set(MARKS) == set(GapCause)
    assert len({mark.letter for mark in MARKS.values()}) == len(MARKS)
