"""The coordinator in real processes: web server and daemon answer what is live, and hold what is being built (rule 8.1).

Dagster's storage is in PostgreSQL: our log lies beside its runs, without a line of configuration. On SQLite the coordinator
is tested in tests/bindings/orchestration/test_coordinator.py.
"""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from databuild_dagster.model.states import InstanceState
from databuild_dagster.store.ledger import Ledger
from tests.support.materialize_button import LAUNCH, launch_params
from tests.support.postgres import postgres_server

from .conftest import Dagster, on_postgres

pytestmark = [pytest.mark.long("web server, daemon and commands share one PostgreSQL"), pytest.mark.timeout(600)]

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
monthly = dg.MonthlyPartitionsDefinition("2024-01-01", end_date="2024-02-01")
OPEN = Path(__file__).parent / "open"


@databuild_asset(partitions_def=daily)
def orders(context: BuildContext) -> pd.DataFrame:
    return pd.DataFrame({"day": [context.partition_key]})


@databuild_asset(partitions_def=daily)
def gated(context: BuildContext) -> pd.DataFrame:
    for _ in range(6000):
        if OPEN.exists():
            break
        threading.Event().wait(0.1)
    else:
        raise TimeoutError(f"{OPEN} was not created within 600 s")
    return pd.DataFrame({"day": [context.partition_key]})


@databuild_asset(partitions_def=dg.DailyPartitionsDefinition("2024-01-30", end_date="2024-02-01"))
def sales(context: BuildContext) -> pd.DataFrame:
    return pd.DataFrame({"day": [context.partition_key], "amount": [2.0]})


@databuild_asset(partitions_def=monthly)
def revenue(sales: pd.DataFrame) -> pd.DataFrame:
    return pd.DataFrame({"revenue": [sales["amount"].sum()]})


@databuild_asset
def visits() -> pd.DataFrame:
    return pd.DataFrame({"n": [1]})


defs = dg.Definitions.merge(
    build_definitions([orders, gated, sales, revenue, visits], location="coordinated"),
    # A process for each step besides that of each run would double the time of the tests.
    dg.Definitions(executor=dg.in_process_executor),
)
"""

DAYS = ["2024-01-29", "2024-01-30", "2024-01-31"]
MONTH = "revenue@2024-01-01"

RUN = """
query($id: ID!) { runOrError(runId: $id) { ... on Run {
    status tags { key value } stats { ... on RunStatsSnapshot { launchTime startTime endTime } }
    eventConnection { events { __typename ... on MessageEvent { message } } } } } }"""

PARTITIONS = """
query($key: AssetKeyInput!) { assetNodeOrError(assetKey: $key) { ... on AssetNode {
    assetPartitionStatuses { ... on TimePartitionStatuses { ranges { status startKey endKey } } } } } }"""


class DagsterOnPostgres(Dagster):
    """Its runs, events and schedules are in a schema of their own, and so is what is ours."""

    def __init__(self, folder: Path) -> None:
        self._url = postgres_server().fresh_url()
        super().__init__(folder, DEFINITIONS, SETTINGS + on_postgres(self._url))

    @property
    def store_url(self) -> str:
        return self._url


@pytest.fixture(scope="module")
def dagster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DagsterOnPostgres]:
    with DagsterOnPostgres(tmp_path_factory.mktemp("coordinator")).running() as running:
        yield running
        # Nothing has to wait when it is ended.
        (running.folder / "open").touch()
    running.store.close()


def materialize(dagster: Dagster, asset: str, *days: str) -> str:
    answer = dagster.graphql(LAUNCH, params=launch_params(asset, days))["launchPipelineExecution"]
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
    return {
        live_instance.ref.partition("@")[2]: live_instance.uuid
        for live_instance in dagster.queries.instances.live(asset)
    }


def test_what_is_live_is_answered_by_the_web_server_itself(dagster: Dagster) -> None:
    """Rule 8.1; and the partitions are green."""
    first = materialize(dagster, "orders", *DAYS)
    dagster.wait_until(lambda: run(dagster, first)["status"] == "SUCCESS", "the days are live")
    built = uuids(dagster, "orders")

    found = run(dagster, materialize(dagster, "orders", *DAYS))

    assert found["status"] == "SUCCESS", "it is answered before the launch returns"
    assert found["tags"]["databuild/delegated"] == "true"
    assert had_no_process(found)
    assert uuids(dagster, "orders") == built
    days = dagster.graphql(PARTITIONS, key={"path": ["orders"]})["assetNodeOrError"]
    assert days["assetPartitionStatuses"]["ranges"] == [
        {"status": "MATERIALIZED", "startKey": DAYS[0], "endKey": DAYS[-1]}
    ]


def test_what_is_being_built_is_waited_for_in_the_queue_and_built_once(dagster: Dagster) -> None:
    """Rules 8.2, 8.3; more runs wait than there are slots, and others start beside them."""
    ref = f"gated@{DAYS[0]}"
    builder = materialize(dagster, "gated", DAYS[0])
    dagster.wait_until(lambda: dagster.state(ref) is InstanceState.BUILDING, "it is being built")

    held = [materialize(dagster, "gated", DAYS[0]) for _ in range(3)]
    beside = materialize(dagster, "visits")
    dagster.wait_until(lambda: run(dagster, beside)["status"] == "SUCCESS", "another run has ended meanwhile")

    for run_id in held:
        found = run(dagster, run_id)
        assert (found["status"], found["tags"]["databuild/hold"]) == ("QUEUED", "true")
    (dagster.folder / "open").touch()
    for run_id in [builder, *held]:
        dagster.wait_until(lambda run_id=run_id: run(dagster, run_id)["status"] == "SUCCESS", "all have ended")

    assert not had_no_process(run(dagster, builder))
    assert all(had_no_process(run(dagster, run_id)) for run_id in held)
    dagster.wait_until(
        lambda: all(run(dagster, run_id)["tags"]["databuild/hold"] == "over" for run_id in held), "all were seen off"
    )
    assert len(dagster.queries.instances.history(ref)) == 1
    assert dagster.violations() == []


# What PostgreSQL could do otherwise


def test_a_month_wanted_from_daemon_and_commands_at_once_is_built_once(dagster: Dagster) -> None:
    """Rules 8.4, 11.1: two orchestrators, and three who ask."""
    wanted = dagster.databuild("want", "create", MONTH)
    builds = [dagster.start_databuild("build", MONTH, "--json") for _ in range(2)]
    built = [json.loads(dagster.finish(build).splitlines()[-1]) for build in builds]

    assert [want["refs"] for want in built] == [{"live": 1, "failed": 0}] * 2
    # A build ends with its refs; the daemon ends the wants of others in its next tick.
    dagster.wait_until(
        lambda: dagster.queries.wants.named(wanted[0]["id"])[0].state.value == "Successful", "the want is successful"
    )
    assert [len(dagster.queries.instances.history(f"sales@{day}")) for day in DAYS[1:]] == [1, 1]
    assert {entry.kind.value for entry in Ledger(dagster.store).of_ref(MONTH)} <= {"built", "joined", "reused"}
    assert dagster.violations() == []
    assert not (dagster.home / "databuild.db").exists()
