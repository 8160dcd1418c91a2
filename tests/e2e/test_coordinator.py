"""The coordinator in real processes: web server and daemon answer what is live, and hold what is being built (SPEC 8.1)."""

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from databuild_dagster.model.states import InstanceState

from .conftest import Dagster

pytestmark = [pytest.mark.long, pytest.mark.timeout(600)]

SETTINGS = """
telemetry: {enabled: false}
run_coordinator: {module: databuild_dagster, class: DatabuildRunCoordinator}
concurrency: {runs: {max_concurrent_runs: 2, tag_concurrency_limits: [{key: team, limit: 1}]}}
"""

#: `gated` builds when the test has put a file there.
DEFINITIONS = """
import threading
from pathlib import Path

import dagster as dg
import pandas as pd

from databuild_dagster import BuildContext, build_definitions, databuild_asset

daily = dg.DailyPartitionsDefinition("2024-01-29", end_date="2024-02-03")
OPEN = Path(__file__).parent / "open"


@databuild_asset(partitions_def=daily)
def orders(context: BuildContext) -> pd.DataFrame:
    return pd.DataFrame({"day": [context.partition_key]})


@databuild_asset(partitions_def=daily)
def gated(context: BuildContext) -> pd.DataFrame:
    pause = threading.Event()
    while not OPEN.exists():
        pause.wait(0.1)
    return pd.DataFrame({"day": [context.partition_key]})


defs = build_definitions([orders, gated])
"""

DAYS = ["2024-01-29", "2024-01-30", "2024-01-31"]
#: What an answer may take on two busy cores; alone it takes a tenth of it, see docs/performance.md.
MAX_ANSWER_SECONDS = 10.0

LAUNCH = """
mutation($params: ExecutionParams!) { launchPipelineExecution(executionParams: $params) {
    __typename ... on LaunchRunSuccess { run { runId } } ... on PythonError { message } } }"""

BACKFILL = """
mutation($params: LaunchBackfillParams!) { launchPartitionBackfill(backfillParams: $params) {
    __typename ... on LaunchBackfillSuccess { backfillId } ... on PythonError { message } } }"""

BACKFILL_STATUS = """
query($id: String!) { partitionBackfillOrError(backfillId: $id) { ... on PartitionBackfill { status } } }"""

RUN = """
query($id: ID!) { runOrError(runId: $id) { ... on Run {
    status tags { key value } stats { ... on RunStatsSnapshot { launchTime startTime endTime } }
    eventConnection { events { __typename ... on MessageEvent { message } } } } } }"""

RUNS = """
query($tags: [ExecutionTag!]) { runsOrError(filter: {tags: $tags}) { ... on Runs { results { runId status } } } }"""

PARTITIONS = """
query($key: AssetKeyInput!) { assetNodeOrError(assetKey: $key) { ... on AssetNode {
    assetPartitionStatuses { ... on TimePartitionStatuses { ranges { status startKey endKey } } } } } }"""


@pytest.fixture(scope="module")
def dagster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Dagster]:
    folder: Path = tmp_path_factory.mktemp("coordinator")
    running = Dagster(folder, DEFINITIONS, SETTINGS)
    running.start()
    yield running
    running.stop()


def materialize(dagster: Dagster, asset: str, *days: str) -> str:
    tags = {"dagster/partition": days[0]}
    if len(days) > 1:
        tags = {"dagster/asset_partition_range_start": days[0], "dagster/asset_partition_range_end": days[-1]}
    selector = {
        "repositoryLocationName": "definitions.py",
        "repositoryName": "__repository__",
        "pipelineName": "__ASSET_JOB",
        "assetSelection": [{"path": [asset]}],
        "assetCheckSelection": [],
    }
    metadata = {"tags": [{"key": key, "value": value} for key, value in tags.items()]}
    params = {"selector": selector, "mode": "default", "executionMetadata": metadata, "runConfigData": "{}"}
    answer = dagster.graphql(LAUNCH, params=params)["launchPipelineExecution"]
    assert answer["__typename"] == "LaunchRunSuccess", answer
    return str(answer["run"]["runId"])


def run(dagster: Dagster, run_id: str) -> dict[str, Any]:
    found: dict[str, Any] = dagster.graphql(RUN, id=run_id)["runOrError"]
    found["tags"] = {tag["key"]: tag["value"] for tag in found["tags"]}
    return found


def had_no_process(found: dict[str, Any]) -> bool:
    events = {event["__typename"] for event in found["eventConnection"]["events"]}
    return found["stats"]["launchTime"] is None and not {"RunStartingEvent", "ExecutionStepStartEvent"} & events


def uuids(dagster: Dagster, asset: str) -> dict[str, str]:
    """Partition key to the instance that is live."""
    return {each.ref.partition("@")[2]: each.uuid for each in dagster.queries.live_instances(asset)}


def test_what_is_live_is_answered_by_the_web_server_itself(dagster: Dagster) -> None:
    """SPEC 8.1; and the partitions are green."""
    first = materialize(dagster, "orders", *DAYS)
    dagster.wait_until(lambda: run(dagster, first)["status"] == "SUCCESS", "the days are live")
    built = uuids(dagster, "orders")

    began = time.monotonic()
    again = materialize(dagster, "orders", *DAYS)
    found = run(dagster, again)
    took = time.monotonic() - began

    assert found["status"] == "SUCCESS"
    assert found["tags"]["databuild/delegated"] == "true"
    assert had_no_process(found)
    assert not had_no_process(run(dagster, first))
    assert took < MAX_ANSWER_SECONDS
    assert uuids(dagster, "orders") == built
    days = dagster.graphql(PARTITIONS, key={"path": ["orders"]})["assetNodeOrError"]
    assert days["assetPartitionStatuses"]["ranges"] == [
        {"status": "MATERIALIZED", "startKey": DAYS[0], "endKey": DAYS[-1]}
    ]


def test_a_backfill_of_what_is_live_completes_without_a_process(dagster: Dagster) -> None:
    """Its runs are answered by the daemon; without materializations it would end failed."""
    materialize(dagster, "orders", *DAYS)
    dagster.wait_until(lambda: set(DAYS) <= uuids(dagster, "orders").keys(), "the days are live")
    params = {"assetSelection": [{"path": ["orders"]}], "partitionNames": DAYS}

    answer = dagster.graphql(BACKFILL, params=params)["launchPartitionBackfill"]
    assert answer["__typename"] == "LaunchBackfillSuccess", answer
    backfill = answer["backfillId"]

    def status() -> str:
        return str(dagster.graphql(BACKFILL_STATUS, id=backfill)["partitionBackfillOrError"]["status"])

    dagster.wait_until(lambda: status() not in ("REQUESTED", "COMPLETING"), "the backfill has ended")
    runs = dagster.graphql(RUNS, tags=[{"key": "dagster/backfill", "value": backfill}])["runsOrError"]["results"]
    assert status() == "COMPLETED_SUCCESS", [run(dagster, each["runId"]) for each in runs]
    assert runs
    assert all(had_no_process(run(dagster, each["runId"])) for each in runs)


def test_what_is_being_built_is_waited_for_in_the_queue_and_built_once(dagster: Dagster) -> None:
    """SPEC 8.2, 8.3; more runs wait than there are slots, and others start beside them."""
    ref = f"gated@{DAYS[0]}"
    builder = materialize(dagster, "gated", DAYS[0])
    dagster.wait_until(lambda: dagster.queries.states([ref])[ref] is InstanceState.BUILDING, "it is being built")

    held = [materialize(dagster, "gated", DAYS[0]) for _ in range(3)]
    beside = materialize(dagster, "orders", "2024-02-01")
    dagster.wait_until(lambda: run(dagster, beside)["status"] == "SUCCESS", "another run has ended meanwhile")

    for run_id in held:
        found = run(dagster, run_id)
        assert (found["status"], found["tags"]["databuild/hold"]) == ("QUEUED", "true")
    (dagster.folder / "open").touch()
    for run_id in [builder, *held]:
        dagster.wait_until(lambda run_id=run_id: run(dagster, run_id)["status"] == "SUCCESS", "all have ended")

    assert all(had_no_process(run(dagster, run_id)) for run_id in held)
    dagster.wait_until(
        lambda: all(run(dagster, run_id)["tags"]["databuild/hold"] == "over" for run_id in held), "all were seen off"
    )
    assert len(dagster.queries.history(ref)) == 1
    assert dagster.violations() == []
