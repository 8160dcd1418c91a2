"""`databuild lot list --subscriptions`, and availability as outsiders follow it (rules 10.3, 10.5, 15)."""

import json

import pytest

from databuild_dagster import available_lots
from tests.support.project import Project, wait_for_line

DEFINITIONS = """
from pathlib import Path

import dagster as dg
import pandas as pd

from databuild_dagster import EMPTY, BuildContext, build_definitions, databuild_asset

HERE = Path(__file__).parent
daily = dg.DailyPartitionsDefinition("2024-01-01", end_date="2024-01-05")


@databuild_asset(partitions_def=daily)
def orders(context: BuildContext) -> pd.DataFrame:
    return EMPTY if context.partition_key.endswith("02") else pd.DataFrame({"amount": [1.5]})


def no_doubts(rows: pd.DataFrame) -> bool:
    return not (HERE / "doubts").exists()


@databuild_asset(partitions_def=daily, subscribe=["orders", "ordesr"], skip_empty=True, blocking_checks=[no_doubts])
def clean(orders: pd.DataFrame) -> pd.DataFrame:
    return orders


defs = build_definitions([orders, clean])
"""
TYPO = (
    "clean subscribes to ordesr, which no code location has registered, so nothing of that name wakes it; "
    "did you mean orders?"
)
DAYS = [f"2024-01-0{day}" for day in range(1, 5)]


@pytest.fixture
def project(project: Project) -> Project:
    project.define(DEFINITIONS)
    return project


def test_arcs_of_a_home_without_any(project: Project) -> None:
    project.define(DEFINITIONS.replace('subscribe=["orders", "ordesr"], ', ""))
    project.call("admin", "tick")

    assert project.ask("lot", "list", "--subscriptions") == []
    assert project.call("lot", "list", "--subscriptions").out == "No asset subscribes to another.\n"


def test_lots_of_arcs_are_listed_by_state_and_by_lot(project: Project) -> None:
    """Rule 10.5, 15"""
    project.build(f"orders@{DAYS[0]}", f"orders@{DAYS[1]}")
    project.build(f"clean@{DAYS[0]}", f"clean@{DAYS[1]}")
    (project.folder / "doubts").touch()
    project.call("build", f"clean@{DAYS[2]}")

    lots = project.ask("lot", "list", "--subscriptions")

    states = {lot["ref"]: lot["state"] for lot in lots}
    assert states == dict(
        zip((f"clean@{day}" for day in DAYS), ("complete", "complete", "partial", "missing"), strict=True)
    )
    assert [lot["lot"] for lot in lots] == [f"2024010{day}P1D000" for day in range(1, 5)]
    assert [set(lot) for lot in lots] == [{"arc", "lot", "ref", "state", "stale", "uuid", "reason", "sources"}] * 4
    assert lots[3]["uuid"] is None
    assert project.ask("lot", "list", "--subscriptions", "clean") == lots
    assert [lot["ref"] for lot in project.ask("lot", "list", "--subscriptions", "--state", "partial")] == [
        f"clean@{DAYS[2]}"
    ]
    listed = project.call("lot", "list", "--subscriptions")
    head, line = listed.out.splitlines()
    assert head.split() == ["arc", "subscribes", "to", "running", "complete", "partial", "missing"]
    assert line.split() == ["clean", "orders,", "ordesr", "0", "2", "1", "1"]
    assert listed.err == f"Warning: {TYPO}\n"
    assert project.call("lot", "list", "--subscriptions", "--state", "running").out == "No lot is running.\n"
    assert (
        f"20240104P1D000  missing   no     clean@{DAYS[3]}  -"
        in project.call("lot", "list", "--subscriptions", "clean", "--list").out
    )

    project.call("build", "--rebuild", f"orders@{DAYS[0]}")
    assert f"complete  yes    clean@{DAYS[0]}" in project.call("lot", "list", "--subscriptions", "--list").out
    (project.folder / "doubts").unlink()
    assert project.is_sound()


def test_an_asset_that_is_no_arc_is_refused(project: Project) -> None:
    project.call("admin", "tick")

    none = project.call("lot", "list", "--subscriptions", "orders")
    unknown = project.call("lot", "list", "--subscriptions", "claen", "--json")

    assert none.code == 2
    assert none.err.startswith(
        "Error: orders subscribes to nothing, so it is no arc. `databuild lot list --subscriptions` lists"
    )
    assert (unknown.code, unknown.json["error"]["type"]) == (2, "UnknownAsset")


def test_an_unknown_source_is_a_warning_when_definitions_load(project: Project) -> None:
    """Rule 10.5: not refused, for another location may bring it; but a typo is not to be looked for."""
    assert project.call("admin", "tick").err == f"Warning: {TYPO}\n"

    project.define(DEFINITIONS.replace('"ordesr"', '"landed"'))

    assert "subscribes to landed, which no code location has registered" in project.call("admin", "tick").err


def test_lots_become_available_line_by_line_in_the_order_of_the_log(project: Project) -> None:
    """Rule 10.3: also what has no rows, also what came from outside; and the same from Python."""
    project.build(f"orders@{DAYS[0]}", f"orders@{DAYS[1]}")

    done = project.call("log", "events", "--kind", "lot-available")

    lines = [json.loads(line) for line in done.out.splitlines()]
    by_ref = {line["ref"]: line for line in lines}
    assert {line["dataset"] for line in lines} >= {"orders"}
    assert by_ref[f"orders@{DAYS[0]}"]["state"] == "complete"
    assert by_ref[f"orders@{DAYS[1]}"]["state"] == "empty"
    for line in lines:
        assert list(line) == ["seq", "at", "dataset", "ref", "uuid", "manifest", "state", "lot"]
        assert line["lot"] == f"{line['ref'].rpartition('@')[2].replace('-', '')}P1D000"
        assert line["uuid"] in line["manifest"]
        assert line["uuid"] == project.ask("show", line["ref"])["canonical"]["uuid"]
    assert [line["seq"] for line in lines] == sorted(line["seq"] for line in lines)
    last = lines[-1]["seq"]
    assert project.call("log", "events", "--kind", "lot-available", "--after", str(last)).out == ""
    found = list(available_lots(home=project.home, dataset="orders"))
    assert [(lot.seq, lot.uuid) for lot in found] == [
        (line["seq"], line["uuid"]) for line in lines if line["dataset"] == "orders"
    ]


@pytest.mark.long("the command prints while it runs in a process")
def test_a_follower_sees_a_lot_while_the_command_runs(project: Project) -> None:
    """Rule 10.3. It may print the first lot as it starts, but the second is built after it has printed the first."""
    project.call("admin", "tick")
    follower = project.start("log", "events", "--follow", "--kind", "lot-available")

    for day in (DAYS[0], DAYS[2]):
        project.build(f"orders@{day}")
        lines = wait_for_line(follower, f"orders@{day}", follower.stdout)
        assert [json.loads(line)["ref"] for line in lines] == [f"orders@{day}"]

    assert follower.poll() is None
