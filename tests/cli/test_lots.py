"""`databuild lots` and `databuild gaps`: what is there of continuous data, what is missing, and why (SPEC 10.7, 15)."""

from __future__ import annotations

import io
from datetime import UTC, datetime

import pytest
from rich.console import Console

from databuild_dagster.cli.calendar import MARKS, MAX_ROWS, calendar
from databuild_dagster.engine.gaps import Absent, Expected, GapCause, GapReport
from databuild_dagster.model.lots import UNITS, LotUnit, lots_between

from .conftest import Project

DEFINITIONS = """
import dagster as dg
import pandas as pd

from databuild_dagster import BuildContext, build_definitions, databuild_asset

hourly = dg.HourlyPartitionsDefinition("2024-02-28-00:00", end_date="2024-03-01-00:00")
forever = dg.TimeWindowPartitionsDefinition(start="1999-01-01-00:00", fmt="%Y-%m-%d-%H:%M", cron_schedule="*/5 * * * *")


@databuild_asset(partitions_def=hourly)
def flights(context: BuildContext) -> pd.DataFrame:
    if context.partition_key == "2024-02-28-02:00":
        raise ValueError("no [b]flights[/b]")
    return pd.DataFrame({"n": [1]})


@databuild_asset(partitions_def=hourly)
def delays(flights: pd.DataFrame) -> pd.DataFrame:
    return flights


@databuild_asset(partitions_def=dg.DailyPartitionsDefinition("2024-02-28", end_date="2024-03-01"))
def report(delays: pd.DataFrame) -> pd.DataFrame:
    return delays


@databuild_asset(partitions_def=forever)
def pings() -> pd.DataFrame:
    return pd.DataFrame({"n": [1]})


@databuild_asset(partitions_def=dg.DailyPartitionsDefinition("2024-02-28", timezone="Europe/Berlin"))
def local() -> pd.DataFrame:
    return pd.DataFrame({"n": [1]})


@databuild_asset
def plain() -> pd.DataFrame:
    return pd.DataFrame({"n": [1]})


defs = build_definitions([flights, delays, report, pings, local, plain])
"""

MIDNIGHT, ONE, TWO = (f"2024-02-28-0{hour}:00" for hour in range(3))


@pytest.fixture
def flights(project: Project) -> Project:
    """A project whose assets have lots; none of them is built."""
    (project.folder / "definitions.py").write_text(DEFINITIONS)
    project.call("tick")
    return project


@pytest.mark.long
def test_what_is_there_and_what_is_not_from_a_dataset_back_to_its_sources(flights: Project) -> None:
    assert flights.run("build", *(f"flights@{key}" for key in (MIDNIGHT, ONE, TWO)), f"delays@{MIDNIGHT}").code == 1
    flights.call("want", "create", f"delays@{TWO}")
    day = ("--from", "2024-02-28", "--to", "20240228PT1H003")

    one = flights.ask("gaps", "flights", *day)
    chain = flights.ask("gaps", "delays", *day, "--chain")

    assert (one["expected"], one["present"], one["empty"]) == (3, 2, 0)
    (failed,) = one["absent"]
    assert (failed["lot"], failed["cause"]) == ("20240228PT1H002", "failed")
    assert failed["first_cause"].startswith(f"flights@{TWO}: failed in job run ")
    assert [each["dataset"] for each in chain["chain"]] == ["flights"]
    assert [(each["lot"], each["cause"]) for each in chain["absent"]] == [
        ("20240228PT1H001", "never wanted"),
        ("20240228PT1H002", "wanted and due"),
    ]
    assert chain["absent"][1]["first_cause"] == failed["first_cause"]

    told = flights.call("gaps", "flights", *day)

    lines = told.out.splitlines()
    assert lines[0].startswith("flights  3 lots of PT1H expected from 2024-02-28T00:00:00Z to 2024-02-28T03:00:00Z: ")
    assert lines[0].endswith("2 present (0 of them empty), 1 absent.")
    assert lines[1:3] == ["2024-02-28  ==F", "F failed 1   = complete 2"]
    assert "no [b]flights[/b]" in lines[4]

    listed = flights.ask("lots", "flights")
    summary = {each["dataset"]: each for each in flights.ask("lots")}

    assert [(each["lot"], each["state"]) for each in listed] == [
        ("20240228PT1H000", "complete"),
        ("20240228PT1H001", "complete"),
        ("20240228PT1H002", "Failed"),
    ]
    assert list(summary) == ["delays", "flights", "pings", "report"]
    assert summary["flights"] == {
        "dataset": "flights",
        "unit": "PT1H",
        "states": {"complete": 2, "Failed": 1},
        "earliest": "20240228PT1H000",
        "latest": "20240228PT1H001",
        "gaps": 46,
    }
    assert flights.call("lots", "flights").out.splitlines()[1].split()[:6] == [
        "flights",
        "PT1H",
        "2",
        "complete,",
        "1",
        "Failed",
    ]
    assert "flights@2024-02-28-02:00" in flights.call("lots", "flights", "--list").out


@pytest.mark.long
def test_a_range_is_cut_down_to_lots_and_a_chain_takes_the_days_it_touches(flights: Project) -> None:
    told = flights.ask("gaps", "delays", "--from", "2024-02-28T04:30:00+02:00", "--to", "2024-02-28T05:59Z")
    chain = flights.ask("gaps", "report", "--chain", "--from", "2024-02-29", "--to", "2024-03-05")

    assert [each["lot"] for each in told["absent"]] == ["20240228PT1H002", "20240228PT1H003", "20240228PT1H004"]
    assert (chain["expected"], chain["outside"]) == (1, 4)
    assert [(each["dataset"], each["expected"]) for each in chain["chain"]] == [("flights", 24), ("delays", 24)]
    assert chain["absent"][0]["first_cause"] == "flights@2024-02-29-00:00: nobody has ever wanted it"


@pytest.mark.long
@pytest.mark.parametrize(
    ("arguments", "kind", "words"),
    [
        (["gaps", "flight"], "UnknownAsset", "Did you mean flights?"),
        (["lots", "flight"], "UnknownAsset", "Did you mean flights?"),
        (["gaps", "plain"], "NoLots", "plain has no lots: it has no partitions."),
        (["gaps", "local"], "NoLots", "Europe/Berlin"),
        (["lots", "plain", "--list"], "NoLots", "plain has no lots: it has no partitions."),
        (
            ["gaps", "flights", "--from", "2024-03-01", "--to", "2024-02-28"],
            "InvalidLotRange",
            "--from comes after --to",
        ),
        (
            ["gaps", "flights", "--from", "2024-02-28T00:10Z", "--to", "2024-02-28T00:20Z"],
            "InvalidLotRange",
            "20240228PT1H000",
        ),
        (["gaps", "flights", "--from", "yesterday"], "InvalidTime", "no day, no time and no lot"),
        (["gaps", "flights", "--from", "2024-02-28T00:10"], "InvalidTime", "in which time zone"),
        (["gaps", "flights", "--from", "2023-02-29"], "InvalidTime", "no day, no time and no lot"),
        (["gaps", "flights", "--to", "20230229PT1H000"], "InvalidLot", "there is no 29 February 2023"),
        (
            ["gaps", "flights", "--from", "20240228PT5M000"],
            "NoLotKey",
            "it is one of PT5M, and flights has lots of PT1H",
        ),
        (["gaps", "flights", "--to", "20240228P1D000"], "NoLotKey", "it is one of P1D, and flights has lots of PT1H"),
        (["gaps", "pings"], "TooManyLots", "more than 1,000,000"),
        (["lots", "--list"], "UsageError", "--list needs a DATASET"),
    ],
)
def test_what_makes_no_report_says_why(flights: Project, arguments: list[str], kind: str, words: str) -> None:
    done = flights.call(*arguments, "--json")

    assert done.code == 2
    assert done.json["error"]["type"] == kind
    assert words in done.json["error"]["message"] + done.json["error"]["hint"]


# The picture


def drawn(
    unit: LotUnit,
    start: str,
    end: str,
    absent: dict[str, GapCause] | None = None,
    *,
    terminal: bool = False,
    width: int = 80,
) -> list[str]:
    since, until = (datetime.fromisoformat(each).replace(tzinfo=UTC).timestamp() for each in (start, end))
    lots = lots_between(since, until, unit)
    ids = list(lots.ids())
    found = [Absent(lot, "a@x", cause, None, "a@x", cause, "so it is") for lot, cause in (absent or {}).items()]
    console = Console(file=io.StringIO(), force_terminal=terminal, width=width, color_system="standard")
    calendar(GapReport(Expected("a", lots, ids, ids, True), (ids[0],), tuple(found)), console)
    return str(console.file.getvalue()).splitlines()  # type: ignore[attr-defined]


def test_a_day_is_a_row_and_a_lot_is_a_mark() -> None:
    lines = drawn(UNITS["PT1H"], "2024-02-28T02:00", "2024-03-01T03:00", {"20240228PT1H003": GapCause.FAILED})

    assert lines == [
        "2024-02-28    oF====================",
        "2024-02-29  ========================",
        "2024-03-01  ===",
        "F failed 1   o empty 1   = complete 47",
    ]


def test_days_that_look_alike_share_a_row() -> None:
    lines = drawn(UNITS["PT1H"], "2024-02-28", "2024-03-06")

    assert lines[:2] == [
        "2024-02-28                o" + 23 * "=",
        "2024-02-29 to 2024-03-05  " + 24 * "=",
    ]


def test_a_mark_for_several_lots_says_how_many_tenths_are_present() -> None:
    absent = dict.fromkeys((f"20240228PT5M{number:03}" for number in (7, 8, 9, 10, 12, 13, 14, 15)), GapCause.BUILDING)

    lines = drawn(UNITS["PT5M"], "2024-02-28", "2024-02-29", absent)

    assert lines == [
        "2024-02-28  o72B" + 68 * "=",
        "B building 8   o empty 1   = complete 279",
        "A mark stands for 4 lots; a digit says how many tenths of them are present.",
    ]


def test_a_year_of_5_minute_lots_of_which_a_tenth_is_there_shows_where_these_are() -> None:
    """SPEC 10.7: no day of the range is dropped."""
    unit = UNITS["PT5M"]
    since, until = (datetime(year, 1, 1, tzinfo=UTC).timestamp() for year in (2023, 2024))
    ids = list(lots_between(since, until, unit).ids())
    # Every day another two hours, and in the last week all of them.
    there = {lot for number, lot in enumerate(ids) if number // 24 % 13 == 0 or number >= len(ids) - 7 * 288}

    lines = drawn(unit, "2023-01-01", "2024-01-01", {lot: GapCause.NEVER_ARRIVED for lot in ids if lot not in there})

    assert len(lines) <= MAX_ROWS + 2
    assert lines[0].startswith("2023-01-01 to 2023-01-07  ")
    assert set(lines[0].partition("2023-01-07")[2]) == {" ", "1", "?"}
    assert "2023-12-31  " in lines[-3], "the latest is drawn"
    assert "=" in lines[-3] or "8" in lines[-3]


def test_days_are_drawn_by_months() -> None:
    lines = drawn(UNITS["P1D"], "2024-01-30", "2024-03-02", {"20240229P1D000": GapCause.WAITING})

    assert lines[:3] == ["2024-01  " + 29 * " " + "o=", "2024-02  " + 28 * "=" + "w", "2024-03  ="]


def test_a_terminal_has_colours_and_its_width_is_kept() -> None:
    lines = drawn(UNITS["PT5M"], "2024-02-28", "2024-02-29", terminal=True, width=60)

    assert "\x1b[32m" in lines[0]
    assert lines[0].count("=") <= 60


def test_days_of_a_picture_that_would_be_long_share_a_row() -> None:
    odd = {
        f"{day}PT1H000": GapCause.FAILED for day in (f"2024{m:02}{d:02}" for m in range(1, 13) for d in range(1, 28, 2))
    }

    lines = drawn(UNITS["PT1H"], "2024-01-01", "2025-01-01", odd)

    assert len(lines) <= MAX_ROWS + 2
    assert lines[0] == "2024-01-01 to 2024-01-07  4" + 23 * "="
    assert lines[-3] == "2024-12-30 to 2024-12-31  " + 24 * "="
    assert lines[-1].startswith("A mark stands for 7 lots")


def test_sixty_years_of_days_fit_as_well() -> None:
    odd = {f"{year}{month:02}15P1D000": GapCause.FAILED for year in range(1970, 2030) for month in range(1, 13, 2)}

    lines = drawn(UNITS["P1D"], "1970-01-01", "2030-01-01", odd)

    assert len(lines) <= MAX_ROWS + 2
    assert lines[0].startswith("1970-01 to ")
    assert "to 2029-12  " in lines[-3]


def test_every_cause_has_a_letter_of_its_own() -> None:
    assert set(MARKS) == set(GapCause)
    assert len({mark.letter for mark in MARKS.values()}) == len(MARKS)
