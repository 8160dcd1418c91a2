"""`databuild lot list` and `databuild lot gaps`: what is there of continuous data, what is missing, and why (rules 10.7, 15)."""

from __future__ import annotations

import pytest

from tests.support.project import Project

DEFINITIONS = """
import dagster as dg
import pandas as pd

from databuild_dagster import BuildContext, DepMiss, build_definitions, databuild_asset

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


berlin = dg.HourlyPartitionsDefinition("2024-10-26-00:00", end_date="2024-10-29-00:00", timezone="Europe/Berlin")
days = dg.DailyPartitionsDefinition("2024-02-28", end_date="2024-05-01", timezone="Europe/Berlin")


@databuild_asset(partitions_def=days)
def local(context: BuildContext) -> pd.DataFrame:
    # Dagster maps windows within one time zone only. These are the hours of UTC that begin in the day of Berlin.
    begin = pd.Timestamp(context.partition_key, tz="Europe/Berlin")
    hours = pd.date_range(begin, begin + pd.DateOffset(days=1), freq="h", inclusive="left").tz_convert("UTC")
    raise DepMiss([f"flights@{hour:%Y-%m-%d-%H:%M}" for hour in hours if hour.day >= 28])


@databuild_asset(partitions_def=berlin)
def clicks() -> pd.DataFrame:
    return pd.DataFrame({"n": [1]})


@databuild_asset(partitions_def=dg.MonthlyPartitionsDefinition("2024-03-01", end_date="2024-05-01", timezone="Europe/Berlin"))
def months(local: pd.DataFrame) -> pd.DataFrame:
    return local


@databuild_asset
def plain() -> pd.DataFrame:
    return pd.DataFrame({"n": [1]})


defs = build_definitions([flights, delays, report, pings, local, clicks, months, plain])
"""

MIDNIGHT, ONE, TWO = (f"2024-02-28-0{hour}:00" for hour in range(3))


@pytest.fixture(scope="module")
def shared_project(shared_project: Project) -> Project:
    """Its assets have lots; none of them is built."""
    shared_project.define(DEFINITIONS)
    return shared_project


@pytest.fixture
def flights(known_project: Project) -> Project:
    return known_project


def test_present_and_absent_lots_are_shown_from_a_dataset_back_to_its_sources(project: Project) -> None:
    project.define(DEFINITIONS)
    assert project.call("build", *(f"flights@{key}" for key in (MIDNIGHT, ONE, TWO)), f"delays@{MIDNIGHT}").code == 1
    project.call("want", "create", f"delays@{TWO}")
    day = ("--from", "2024-02-28", "--to", "20240228PT1H003")

    one = project.ask("lot", "gaps", "flights", *day)
    chain = project.ask("lot", "gaps", "delays", *day, "--chain")

    assert (one["expected"], one["present"], one["empty"]) == (3, 2, 0)
    (failed,) = one["absent"]
    assert (failed["lot"], failed["cause"]) == ("20240228PT1H002", "failed")
    assert failed["first_cause"].startswith(f"flights@{TWO}: failed in job run ")
    assert [item["dataset"] for item in chain["chain"]] == ["flights"]
    assert [(item["lot"], item["cause"]) for item in chain["absent"]] == [
        ("20240228PT1H001", "never wanted"),
        ("20240228PT1H002", "wanted and due"),
    ]
    assert chain["absent"][1]["first_cause"] == failed["first_cause"]

    answer = project.call("lot", "gaps", "flights", *day, "--wide")

    lines = answer.out.splitlines()
    assert lines[0].startswith("flights  3 lots of PT1H expected from 2024-02-28T00:00:00Z to 2024-02-28T03:00:00Z: ")
    assert lines[0].endswith("2 present (0 of them empty), 1 absent.")
    assert lines[1:3] == ["2024-02-28  ==F", "F failed 1   = complete 2"]
    assert "no [b]flights[/b]" in lines[4]

    listed = project.ask("lot", "list", "flights")
    summary = {lot["dataset"]: lot for lot in project.ask("lot", "list")}

    assert [(entry["lot"], entry["state"]) for entry in listed] == [
        ("20240228PT1H000", "complete"),
        ("20240228PT1H001", "complete"),
        ("20240228PT1H002", "Failed"),
    ]
    assert list(summary) == ["clicks", "delays", "flights", "local", "months", "pings", "report"]
    assert summary["flights"] == {
        "dataset": "flights",
        "unit": "PT1H",
        "timezone": "UTC",
        "states": {"complete": 2, "Failed": 1},
        "earliest": "20240228PT1H000",
        "latest": "20240228PT1H001",
        "gaps": 46,
    }
    assert project.call("lot", "list", "flights").out.splitlines()[1].split()[:6] == [
        "flights",
        "PT1H",
        "2",
        "complete,",
        "1",
        "Failed",
    ]
    assert "flights@2024-02-28-02:00" in project.call("lot", "list", "flights", "--list").out


def test_a_range_is_cut_down_to_lots_and_a_chain_takes_the_days_it_touches(flights: Project) -> None:
    answer = flights.ask("lot", "gaps", "delays", "--from", "2024-02-28T04:30:00+02:00", "--to", "2024-02-28T05:59Z")
    chain = flights.ask("lot", "gaps", "report", "--chain", "--from", "2024-02-29", "--to", "2024-03-05")

    assert [item["lot"] for item in answer["absent"]] == ["20240228PT1H002", "20240228PT1H003", "20240228PT1H004"]
    assert (chain["expected"], chain["outside"]) == (1, 4)
    assert [(item["dataset"], item["expected"]) for item in chain["chain"]] == [("flights", 24), ("delays", 24)]
    assert chain["absent"][0]["first_cause"] == "flights@2024-02-29-00:00: it was never wanted"


def test_hours_in_a_zone_are_named_by_their_keys_on_the_day_that_has_25(flights: Project) -> None:
    day = ("lot", "gaps", "clicks", "--from", "2024-10-27", "--to", "2024-10-28-00:00")

    answer = flights.ask(*day)
    lines = flights.call(*day).out.splitlines()

    names = [item["lot"] for item in answer["absent"]]
    assert (answer["unit"], answer["timezone"], answer["expected"], len(names)) == ("PT1H", "Europe/Berlin", 25, 25)
    assert (answer["from"], answer["to"]) == ("2024-10-27T00:00:00+02:00", "2024-10-28T00:00:00+01:00")
    assert names[1:5] == ["2024-10-27-01:00", "2024-10-27-02:00", "2024-10-27-02:00+0100", "2024-10-27-03:00"]
    assert lines[0].startswith("clicks  25 lots of PT1H in Europe/Berlin expected from 2024-10-27T00:00:00+02:00 to ")
    assert lines[1] == "2024-10-27  " + 25 * "."


def test_a_chain_leads_from_a_month_over_days_in_a_zone_to_hours_of_utc(project: Project) -> None:
    project.define(DEFINITIONS)
    project.call("want", "create", "local@2024-02-28")
    assert project.call("admin", "tick").code == 0

    day = project.ask("lot", "gaps", "local", "--from", "2024-02-28", "--to", "2024-02-29")
    month = project.ask("lot", "gaps", "months", "--chain", "--to", "2024-04-01")

    assert [item["lot"] for item in day["absent"]] == ["2024-02-28"]
    assert day["absent"][0]["cause"].startswith("waiting for upstream flights@2024-02-28-")
    assert [(item["dataset"], item["expected"]) for item in month["chain"]] == [("local", 31)]
    assert month["absent"][0]["first_cause"].startswith("local@2024-03-01")


@pytest.mark.parametrize(
    ("arguments", "kind"),
    [
        (["gaps", "flight"], "UnknownAsset"),
        (["list", "flight"], "UnknownAsset"),
        (["gaps", "plain"], "NoLots"),
        (["list", "plain", "--list"], "NoLots"),
        (["gaps", "months", "--from", "2024-3-01"], "InvalidTime"),
        (["gaps", "months", "--from", "2024-03-05", "--to", "2024-03-20"], "InvalidLotRange"),
        (["gaps", "clicks", "--to", "20241027PT1H000"], "NoLotKey"),
        (["gaps", "flights", "--from", "20240228PT5M000"], "NoLotKey"),
        (["gaps", "flights", "--to", "20230229PT1H000"], "InvalidLot"),
        (["gaps", "pings"], "TooManyLots"),
    ],
)
def test_a_report_that_cannot_be_made_is_refused(flights: Project, arguments: list[str], kind: str) -> None:
    done = flights.call("lot", *arguments, "--json")

    assert (done.code, done.json["error"]["type"]) == (2, kind)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["gaps", "flights", "--from", "yesterday"], "no day, no time and no lot"),
        (["gaps", "flights", "--from", "2024-02-28T00:10"], "in which time zone"),
        (["gaps", "flights", "--from", "2024-03-01", "--to", "2024-02-28"], "--from comes after --to"),
        (["list", "--list"], "--list needs a DATASET"),
    ],
)
def test_arguments_that_cannot_be_meant_are_refused_with_the_reason(
    flights: Project, arguments: list[str], words: str
) -> None:
    done = flights.call("lot", *arguments)

    assert done.code == 2
    assert words in done.err
