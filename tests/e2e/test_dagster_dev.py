"""Web server, daemon and orchestrator sensor as real processes, driven over GraphQL until the month is live."""

import pytest

from .conftest import Dagster

pytestmark = [pytest.mark.long, pytest.mark.timeout(600)]

MONTH = "revenue@2024-01-01"
DAYS = ["2024-01-29", "2024-01-30", "2024-01-31"]

PARTITIONS = """
query($key: AssetKeyInput!) { assetNodeOrError(assetKey: $key) { ... on AssetNode {
    assetPartitionStatuses { ... on TimePartitionStatuses { ranges { status startKey endKey } } }
    assetMaterializations { partition runId metadataEntries { label } tags { key value } }
} } }"""

RUNS = """{ runsOrError { ... on Runs { results { runId status tags { key value } assetSelection { path } } } } }"""

SENSORS = """
{ workspaceOrError { ... on Workspace { locationEntries { locationOrLoadError { ... on RepositoryLocation {
    name repositories { name sensors { name sensorState { status } } } } } } } } }"""

MATERIALIZE = """
mutation($params: ExecutionParams!) { launchPipelineExecution(executionParams: $params) {
    __typename ... on LaunchRunSuccess { run { runId } } ... on PythonError { message } } }"""


def test_a_want_becomes_a_live_month_through_the_daemon_and_what_a_person_materialized_is_not_built_again(
    dagster: Dagster,
) -> None:
    location, repository, sensors = _deployed(dagster)
    assert sensors == {"databuild_orchestrator": "RUNNING", "databuild_operations": "RUNNING"}

    run_id = _materialize(dagster, location, repository, "orders", "2024-01-30")
    dagster.wait_until(lambda: _runs(dagster).get(run_id) == "SUCCESS", "the person's run has ended")
    by_hand = dagster.databuild("show", "orders@2024-01-30")["canonical"]

    dagster.databuild("want", "create", MONTH)
    dagster.wait_until(lambda: dagster.databuild("show", MONTH)["state"] == "Live", "the month is live")

    assert dagster.databuild("read", MONTH) == [{"revenue": 6.0}]
    assert dagster.databuild("show", "orders@2024-01-30")["canonical"] == by_hand
    assert by_hand["uuid"] in dagster.databuild("show", MONTH)["canonical"]["inputs"]
    dagster.wait_until(lambda: set(_runs(dagster).values()) == {"SUCCESS"}, "every run has ended")

    days = dagster.graphql(PARTITIONS, key={"path": ["orders"]})["assetNodeOrError"]
    assert days["assetPartitionStatuses"]["ranges"] == [
        {"status": "MATERIALIZED", "startKey": DAYS[0], "endKey": DAYS[-1]}
    ]
    materialized = days["assetMaterializations"]
    assert sorted(each["partition"] for each in materialized) == DAYS, "each day was built once"
    uuids = {each["ref"]: each["uuid"] for each in dagster.databuild("partitions", "orders")}
    for each in materialized:
        versions = [tag["value"] for tag in each["tags"] if tag["key"] == "dagster/data_version"]
        assert versions == [uuids[f"orders@{each['partition']}"]]

    month = dagster.graphql(PARTITIONS, key={"path": ["revenue"]})["assetNodeOrError"]
    assert [each["partition"] for each in month["assetMaterializations"]] == ["2024-01-01"]
    assert [want.state.value for want in dagster.queries.wants_of_ref(MONTH)] == ["Successful"]
    assert dagster.violations() == []


def _deployed(dagster: Dagster) -> tuple[str, str, dict[str, str]]:
    (entry,) = dagster.graphql(SENSORS)["workspaceOrError"]["locationEntries"]
    location = entry["locationOrLoadError"]
    (repository,) = location["repositories"]
    sensors = {sensor["name"]: sensor["sensorState"]["status"] for sensor in repository["sensors"]}
    return location["name"], repository["name"], sensors


def _materialize(dagster: Dagster, location: str, repository: str, asset: str, partition: str) -> str:
    """What the Materialize button sends."""
    selector = {
        "repositoryLocationName": location,
        "repositoryName": repository,
        "pipelineName": "__ASSET_JOB",
        "assetSelection": [{"path": [asset]}],
        "assetCheckSelection": [],
    }
    tags = [{"key": "dagster/partition", "value": partition}]
    params = {"selector": selector, "mode": "default", "executionMetadata": {"tags": tags}, "runConfigData": "{}"}
    answer = dagster.graphql(MATERIALIZE, params=params)["launchPipelineExecution"]
    assert answer["__typename"] == "LaunchRunSuccess", answer
    run_id: str = answer["run"]["runId"]
    return run_id


def _runs(dagster: Dagster) -> dict[str, str]:
    return {run["runId"]: run["status"] for run in dagster.graphql(RUNS)["runsOrError"]["results"]}
