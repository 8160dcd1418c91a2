"""Automation as people run it: a real daemon evaluates conditions that ask the store, where the code is."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from .conftest import Dagster

pytestmark = [pytest.mark.long("a daemon evaluates conditions in the code server"), pytest.mark.timeout(600)]

DEFINITIONS = """
import dagster as dg
import pandas as pd

from databuild_dagster import build_definitions, databuild_asset
from databuild_dagster.automation import eager

daily = dg.DailyPartitionsDefinition("2024-01-29", end_date="2024-02-01")


@databuild_asset(partitions_def=daily)
def orders() -> pd.DataFrame:
    return pd.DataFrame({"amount": [2.0]})


@databuild_asset(partitions_def=daily, automation_condition=eager())
def copied(orders: pd.DataFrame) -> pd.DataFrame:
    return orders


@databuild_asset(partitions_def=daily, automation_condition=eager())
def copied_again(copied: pd.DataFrame) -> pd.DataFrame:
    return copied


defs = build_definitions([orders, copied, copied_again])
"""

LAST = "2024-01-31"

SENSORS = """
{ workspaceOrError { ... on Workspace { locationEntries { locationOrLoadError { ... on RepositoryLocation {
    repositories { sensors { name sensorState { status ticks(limit: 20) { status error { message } } } } } } } } } } }"""

RUNS = """{ runsOrError { ... on Runs { results { runId status tags { key value } assetSelection { path } } } } }"""


@pytest.fixture
def automated(tmp_path: Path) -> Iterator[Dagster]:
    with Dagster(tmp_path, DEFINITIONS).running() as running:
        yield running


@pytest.mark.extended
def test_what_becomes_possible_is_built_by_itself_and_once(automated: Dagster) -> None:
    """`eager` under the daemon: one Dagster run for both, in order, and none that would only delegate."""
    automated.wait_until(lambda: _ticks(automated, "databuild_automation") >= 1, "automation was evaluated")

    automated.databuild("want", "create", f"orders@{LAST}")
    automated.wait_until_live(f"copied_again@{LAST}")
    evaluated = _ticks(automated, "databuild_automation")
    automated.wait_until(lambda: _ticks(automated, "databuild_automation") > evaluated, "it was evaluated again")

    by_automation = [
        sorted(selected["path"][0] for selected in run["assetSelection"])
        for run in automated.graphql(RUNS)["runsOrError"]["results"]
        if {"key": "dagster/from_automation_condition", "value": "true"} in run["tags"]
    ]
    assert by_automation == [["copied", "copied_again"]]
    assert [entry["ref"] for entry in automated.databuild("partitions", "copied") if entry["state"]] == [
        f"copied@{LAST}"
    ]
    assert automated.violations() == []


def _ticks(dagster: Dagster, sensor: str) -> int:
    """Evaluations so far, of which none has failed."""
    (entry,) = dagster.graphql(SENSORS)["workspaceOrError"]["locationEntries"]
    (repository,) = entry["locationOrLoadError"]["repositories"]
    states = {sensor["name"]: sensor["sensorState"] for sensor in repository["sensors"]}
    assert states[sensor]["status"] == "RUNNING"
    ticks = states[sensor]["ticks"]
    assert [tick["error"] for tick in ticks if tick["error"]] == []
    return sum(tick["status"] in ("SUCCESS", "SKIPPED") for tick in ticks)
