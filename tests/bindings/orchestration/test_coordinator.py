"""The run coordinator: what is live, or being built, needs no process; everything else goes on as without us (rules 8.1, 8.3).

Runs are submitted as the Launchpad does it, over GraphQL, to an instance whose queue no daemon works on unless the test
says so. Builds of others are written to the store; nothing here needs Spark.
"""

import logging
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import dagster as dg
import pytest
from dagster._core.launcher import WorkerStatus
from dagster._core.remote_origin import InProcessCodeLocationOrigin
from dagster._core.test_utils import InProcessTestWorkspaceLoadTarget, create_run_for_test
from dagster._core.types.loadable_target_origin import LoadableTargetOrigin
from dagster._core.workspace.context import WorkspaceProcessContext
from dagster._daemon.controller import create_daemon_of_type
from dagster._daemon.monitoring.run_monitoring import execute_run_monitoring_iteration
from dagster._daemon.run_coordinator.queued_run_coordinator_daemon import QueuedRunCoordinatorDaemon
from dagster_graphql.test.utils import execute_dagster_graphql

from databuild_dagster.bindings.adapter.keys import ORCHESTRATOR
from databuild_dagster.bindings.adapter.run_tags import (
    DELEGATED_TAG,
    HELD,
    HOLD_TAG,
    LAUNCH_TAG,
    OUTCOME_TAG,
    OVER,
    PROCESS_TAG,
    RELEASED,
    TAINT_CHECK,
)
from databuild_dagster.bindings.adapter.sqlite_tuning import tune_dagster_writes
from databuild_dagster.bindings.authoring.location import load_code_locations
from databuild_dagster.bindings.claims import run_messages
from databuild_dagster.bindings.orchestration.beside_the_queue import SILENT_SECONDS
from databuild_dagster.bindings.orchestration.tend_held_runs import SUBMITTING_SECONDS, tend_held_runs
from databuild_dagster.bindings.registry.instance import engine_for
from databuild_dagster.bindings.registry.registration import datasets_of
from databuild_dagster.engine.engine import Engine
from databuild_dagster.engine.holders import this_process
from databuild_dagster.engine.registering import register
from databuild_dagster.model.commands import (
    CancelJobRuns,
    CreateWants,
    FailJobRuns,
    MissDeps,
    PausePartitions,
    RunFailure,
    RunMiss,
    SucceedJobRuns,
    TaintPartitions,
)
from databuild_dagster.model.events import ManifestFact, OutputFact, RunSuccess
from databuild_dagster.model.refs import parse_ref
from databuild_dagster.model.states import InstanceState
from tests.support.checking import check
from tests.support.launchers import Unknowing
from tests.support.materialize_button import LAUNCH, launch_params

from ..conftest import claim

SUCCESS, FAILURE, QUEUED = dg.DagsterRunStatus.SUCCESS, dg.DagsterRunStatus.FAILURE, dg.DagsterRunStatus.QUEUED
DAY, NEXT_DAY = "2013-01-01", "2013-01-02"
REF = f"numbers@{DAY}"
MATERIALIZATION, OBSERVATION = dg.DagsterEventType.ASSET_MATERIALIZATION, dg.DagsterEventType.ASSET_OBSERVATION
TIMEOUT_SECONDS = 3600.0
#: More than one run of it writes to Dagster from its submission to its end.
MAX_WRITES = 30

DEFINITIONS = """
import dagster as dg
import pandas as pd

from databuild_dagster import BuildContext, build_definitions, databuild_asset, want_schedule, want_sensor

daily = dg.DailyPartitionsDefinition("2013-01-01", end_date="2014-01-01")
cells = dg.MultiPartitionsDefinition({"day": daily, "shop": dg.StaticPartitionsDefinition(["x", "y"])})


@databuild_asset(partitions_def=daily)
def numbers(context: BuildContext) -> pd.DataFrame:
    return pd.DataFrame({"day": [context.partition_key]})


@databuild_asset(partitions_def=daily)
def doubles(numbers: pd.DataFrame) -> pd.DataFrame:
    return numbers


@databuild_asset(partitions_def=cells)
def sold(context: BuildContext) -> pd.DataFrame:
    return pd.DataFrame({"cell": [context.partition_key]})


@databuild_asset(partitions_def=dg.DynamicPartitionsDefinition(name="shops"))
def shops(context: BuildContext) -> pd.DataFrame:
    return pd.DataFrame({"shop": [context.partition_key]})


@databuild_asset
def whole() -> pd.DataFrame:
    return pd.DataFrame({"n": [1]})


@dg.asset(partitions_def=daily, deps=["numbers"])
def plain() -> None: ...


@dg.asset_check(asset="numbers")
def looks_right() -> dg.AssetCheckResult:
    return dg.AssetCheckResult(passed=True)


defs = build_definitions(
    [numbers, doubles, sold, shops, whole, plain],
    asset_checks=[looks_right],
    location="tests",
    schedules=[want_schedule(name="wanting_schedule", cron_schedule="0 0 1 1 *", refs=lambda context: ["whole"])],
    sensors=[want_sensor(name="wanting_sensor", refs=lambda context: ["whole"])],
)
"""


@dataclass
class Deployment:
    """An instance with the coordinator, a code location, and the store that both use."""

    instance: dg.DagsterInstance
    workspace: WorkspaceProcessContext
    engine: Engine

    def submit(
        self,
        *assets: str,
        keys: Sequence[str] = (DAY,),
        checks: Sequence[tuple[str, str]] = (),
        config: dict[str, Any] | None = None,
        tags: dict[str, str] | None = None,
    ) -> dg.DagsterRun:
        """As the Launchpad does it; of several keys the range from the first to the last."""
        params = launch_params(assets[0], keys)
        params["selector"] |= {
            "repositoryLocationName": self.workspace.code_location_names[0],
            "assetSelection": [{"path": [asset]} for asset in assets],
            "assetCheckSelection": [{"assetKey": {"path": [asset]}, "name": name} for asset, name in checks],
        }
        params["executionMetadata"]["tags"] += [{"key": key, "value": value} for key, value in (tags or {}).items()]
        params["runConfigData"] = config or {}
        context = self.workspace.create_request_context()
        answer = execute_dagster_graphql(context, LAUNCH, variables={"params": params}).data["launchPipelineExecution"]
        assert answer["__typename"] == "LaunchRunSuccess", answer
        return self.run(answer["run"]["runId"])

    def try_out(self, call: str, name: str, more: str) -> dict[str, Any]:
        """The test button on the page of a sensor or a schedule; what its evaluation returned."""
        place = f'repositoryLocationName: "{self.workspace.code_location_names[0]}", repositoryName: "__repository__"'
        answer = "__typename ... on DryRunInstigationTick { evaluationResult { runRequests { runKey } skipReason } }"
        mutation = f"mutation {{ {call}(selectorData: {{{place}, {name}}}, {more}) {{ {answer} }} }}"
        (found,) = execute_dagster_graphql(self.workspace.create_request_context(), mutation).data.values()
        evaluation: dict[str, Any] = found["evaluationResult"]
        return evaluation

    def run(self, run_id: str) -> dg.DagsterRun:
        run = self.instance.get_run_by_id(run_id)
        assert run is not None
        return run

    def dequeue(self) -> list[str]:
        """One round of Dagster's daemon; the runs that it has started so far."""
        daemon = QueuedRunCoordinatorDaemon(interval_seconds=1)
        list(daemon.run_iteration(self.workspace))
        launcher: Any = self.instance.run_launcher
        return [run.run_id for run in launcher.queue()]

    def tend_held_runs(self, timeout_seconds: float = TIMEOUT_SECONDS) -> None:
        tend_held_runs(self.instance, location="tests", delegation_timeout_seconds=timeout_seconds)

    def turn_clock(self, seconds: float) -> None:
        """From now on it is so much later for the store and for ticks."""
        before = self.engine.clock
        self.engine.clock = lambda: before() + seconds

    def log(self, run_id: str) -> str:
        return "\n".join(entry.message for entry in self.instance.all_logs(run_id))

    def events(self, run_id: str, kind: dg.DagsterEventType) -> list[Any]:
        return [entry.dagster_event for entry in self.instance.all_logs(run_id, of_type=kind)]

    def last_word(self, asset: str) -> str:
        """The Dagster run by whose end Dagster paints the day."""
        log = self.instance.event_log_storage
        attempts = log.get_latest_asset_partition_materialization_attempts_without_materializations(dg.AssetKey(asset))
        return attempts[DAY][0]

    def ledger(self, requester: str) -> dict[str, tuple[str, str]]:
        return {
            entry.ref: (entry.kind.value, entry.outcome.value) for entry in self.engine.ledger.of_requester(requester)
        }

    # What others do

    def begin(self, ref: str) -> str:
        """Another Dagster run builds the ref; returns its job run."""
        (job_run,) = claim(self.engine, ref, holder=this_process())
        return job_run

    def hold(self) -> tuple[str, dg.DagsterRun]:
        """A run for the day that another one builds; the job run of that one, and the held run."""
        builder = self.begin(REF)
        return builder, self.submit("numbers")

    def succeed(self, job_run: str) -> None:
        refs = self.engine.queries.job_runs.named([job_run])[job_run].refs
        outputs = tuple(OutputFact(ref=ref, manifest=ManifestFact(state="empty", uri=job_run)) for ref in refs)
        self.engine.handle(SucceedJobRuns(runs=(RunSuccess(job_run, outputs),)))

    def live(self, *refs: str) -> None:
        """Live, and built by the Dagster run of their own launch."""
        for ref in refs:
            self.succeed(self.begin(ref))

    def fail(self, job_run: str, *, kind: str = "hard") -> None:
        self.engine.handle(FailJobRuns(failures=(RunFailure(job_run, "no such file", kind),)))

    def uuid(self, ref: str) -> str:
        found = self.engine.queries.canonical.of([ref])[ref].uuid
        assert found is not None
        return found


@pytest.fixture
def settings() -> dict[str, Any]:
    """The other settings of dagster.yaml."""
    return {}


@pytest.fixture
def coordinator_config() -> dict[str, Any]:
    return {}


@pytest.fixture(scope="module")
def fresh(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A project and its home, where the location is registered and nothing has happened; made once, copied for each test."""
    folder = tmp_path_factory.mktemp("fresh")
    file = folder / "definitions.py"
    file.write_text(DEFINITIONS)
    (folder / "home").mkdir()
    with dg.instance_for_test(temp_dir=str(folder / "home")) as instance:
        (location,) = load_code_locations(files=[str(file)])
        register(engine_for(instance), "tests", datasets_of(location.repository.asset_graph, "tests"))
        instance.get_runs(limit=1)
    return folder


@pytest.fixture
def deployment(
    tmp_path: Path, fresh: Path, settings: dict[str, Any], coordinator_config: dict[str, Any]
) -> Iterator[Deployment]:
    tune_dagster_writes()
    home = tmp_path / "home"
    shutil.copytree(fresh / "home", home)
    overrides = {
        "run_coordinator": {
            "module": "databuild_dagster",
            "class": "DatabuildRunCoordinator",
            "config": coordinator_config,
        },
        "run_launcher": {"module": "dagster._core.test_utils", "class": "MockedRunLauncher"},
        **settings,
    }
    file = str(fresh / "definitions.py")
    origin = InProcessCodeLocationOrigin(LoadableTargetOrigin(python_file=file, attribute="defs"))
    with (
        dg.instance_for_test(overrides=overrides, temp_dir=str(home)) as instance,
        WorkspaceProcessContext(instance, InProcessTestWorkspaceLoadTarget(origin)) as workspace,
    ):
        engine = engine_for(instance)
        yield Deployment(instance, workspace, engine)
        assert list(check(engine.store)) == []


# All live


def test_a_run_for_what_is_live_ends_at_once_and_no_process_starts(deployment: Deployment) -> None:
    """Rules 8.1, 8.2: delegated to the build that made it, and the job is skipped."""
    deployment.live(REF)

    run = deployment.submit("numbers")

    assert run.status is SUCCESS
    assert (run.tags[DELEGATED_TAG], run.tags[HOLD_TAG]) == ("true", OVER)
    assert deployment.dequeue() == []
    assert deployment.ledger(run.run_id) == {REF: ("reused", "live")}
    assert run_messages.reused([REF]) in deployment.log(run.run_id)
    assert run_messages.skipped([REF]) in deployment.log(run.run_id)
    stats = deployment.instance.get_run_stats(run.run_id)
    assert stats.start_time is not None
    assert stats.end_time is not None


def test_a_partition_unknown_to_dagster_is_materialized_and_a_known_one_observed(deployment: Deployment) -> None:
    """The partition ends green, with the data version of the instance and a link to the run that built it."""
    builder = deployment.begin(REF)
    deployment.succeed(builder)
    built_by = deployment.engine.queries.job_runs.named([builder])[builder].dagster_run_id

    first = deployment.submit("numbers")
    again = deployment.submit("numbers")

    (materialized,) = deployment.events(first.run_id, MATERIALIZATION)
    (observed,) = deployment.events(again.run_id, OBSERVATION)
    found = [materialized.step_materialization_data.materialization, observed.asset_observation_data.asset_observation]
    for event in found:
        assert event.partition == DAY
        assert event.tags["dagster/data_version"] == deployment.uuid(REF)
        assert event.metadata["databuild/served_by"].value == built_by
    assert deployment.events(again.run_id, MATERIALIZATION) == []
    assert deployment.instance.get_materialized_partitions(dg.AssetKey("numbers")) == {DAY}


def test_the_check_for_taints_that_was_asked_for_is_given(deployment: Deployment) -> None:
    """The Materialize button asks for it, for it is a check of the asset's own step."""
    deployment.live(REF, f"numbers@{NEXT_DAY}")
    deployment.engine.handle(TaintPartitions(refs=(f"numbers@{NEXT_DAY}",), reason="wrong"))

    run = deployment.submit("numbers", checks=[("numbers", TAINT_CHECK)])

    assert run.status is SUCCESS
    check = dg.AssetCheckKey(dg.AssetKey("numbers"), TAINT_CHECK)
    record = deployment.instance.event_log_storage.get_latest_asset_check_execution_by_key([check])[check]
    assert record.event is not None
    assert record.event.dagster_event is not None
    assert record.event.dagster_event.asset_check_evaluation_data.metadata["databuild/tainted"].value == 1


def test_several_assets_and_days_are_answered_together_also_in_a_backfill(
    deployment: Deployment,
) -> None:
    """A backfill would otherwise end failed."""
    names, days = ("numbers", "doubles"), (DAY, NEXT_DAY)
    deployment.live(*(f"{asset}@{day}" for asset in names for day in days))

    run = deployment.submit(*names, keys=days)
    backfill = deployment.submit("numbers", keys=days, tags={"dagster/backfill": "b"})

    assert (run.status, backfill.status) == (SUCCESS, SUCCESS)
    assert list(deployment.ledger(run.run_id).values()) == [("reused", "live")] * 4
    assert [event.partition for event in deployment.events(backfill.run_id, MATERIALIZATION)] == [DAY, NEXT_DAY]


def test_a_partition_of_two_dimensions_is_answered_by_both(deployment: Deployment) -> None:
    deployment.live(f"sold@{DAY}|x")
    dimensions = {"dagster/partition/day": DAY, "dagster/partition/shop": "x"}

    run = deployment.submit("sold", keys=[f"{DAY}|x"], tags=dimensions)

    assert run.status is SUCCESS
    (found,) = deployment.events(run.run_id, MATERIALIZATION)
    assert found.partition == dg.MultiPartitionKey({"day": DAY, "shop": "x"})
    assert found.step_materialization_data.materialization.tags["dagster/partition/shop"] == "x"


def test_an_asset_without_partitions_is_answered_as_a_whole(deployment: Deployment) -> None:
    deployment.live("whole")

    first, again = (deployment.submit("whole", keys=()) for _ in range(2))

    assert (first.status, again.status) == (SUCCESS, SUCCESS)
    assert [len(deployment.events(run.run_id, MATERIALIZATION)) for run in (first, again)] == [1, 0]
    assert [len(deployment.events(run.run_id, OBSERVATION)) for run in (first, again)] == [0, 1]


def test_a_partition_that_was_deleted_is_answered_by_what_is_live_of_it(deployment: Deployment) -> None:
    """As the step would: the instance outlives the name."""
    deployment.instance.add_dynamic_partitions("shops", ["x"])
    deployment.live("shops@x")
    deployment.instance.delete_dynamic_partition("shops", "x")

    assert deployment.submit("shops", keys=["x"]).status is SUCCESS


# What goes on as without us


def goes_on(deployment: Deployment, run: dg.DagsterRun) -> bool:
    """It is in the queue like any other, and nothing was recorded for it."""
    waits = run.status is QUEUED and run.tags.get(HOLD_TAG) in (None, RELEASED)
    return waits and deployment.ledger(run.run_id) == {} and run.run_id in deployment.dequeue()


GOING_ON: dict[str, tuple[list[str], dict[str, Any]]] = {
    "a day to build": (["numbers"], {"keys": [DAY, NEXT_DAY]}),
    "an asset to build": (["numbers", "doubles"], {}),
    "a plain asset beside ours": (["numbers", "plain"], {}),
    "a plain asset": (["plain"], {}),
    "a check of the user": (["numbers"], {"checks": [("numbers", "looks_right")]}),
    "a rebuild by tag": (["numbers"], {"tags": {"databuild/rebuild": "true"}}),
    "a rebuild by the Launchpad": (
        ["numbers"],
        {"config": {"resources": {"databuild": {"config": {"rebuild": True}}}}},
    ),
    "a launch of the orchestrator": (["numbers"], {"tags": {LAUNCH_TAG: "0193a5b2-0000-7000-8000-000000000000"}}),
}


def test_a_run_with_anything_to_do_goes_on(deployment: Deployment) -> None:
    """Rules 8.1, 8.7"""
    deployment.live(REF)

    for name, (assets, options) in GOING_ON.items():
        assert goes_on(deployment, deployment.submit(*assets, **options)), name


def test_the_target_of_a_run_that_executes_all_checks_of_its_asset_is_the_asset(deployment: Deployment) -> None:
    """Dagster's list of runs would show the checks in place of the asset."""
    run = deployment.submit("sold", checks=[("sold", TAINT_CHECK)])

    assert (run.asset_selection, run.asset_check_selection) == ({dg.AssetKey("sold")}, None)
    some = deployment.submit("numbers", checks=[("numbers", TAINT_CHECK)])
    assert some.asset_check_selection == {dg.AssetCheckKey(dg.AssetKey("numbers"), TAINT_CHECK)}


def test_a_person_opens_what_failed_and_a_sensor_is_refused_at_once(deployment: Deployment) -> None:
    """Rule 8.1"""
    deployment.fail(deployment.begin(REF))

    by_sensor = deployment.submit("numbers", tags={"dagster/sensor_name": "s"})
    by_person = deployment.submit("numbers")

    assert goes_on(deployment, by_person)
    assert (by_sensor.status, by_sensor.tags[OUTCOME_TAG], by_sensor.tags[HOLD_TAG]) == (FAILURE, "denied", OVER)
    assert DELEGATED_TAG not in by_sensor.tags
    assert "no such file" in deployment.log(by_sensor.run_id)


def test_a_run_for_a_paused_partition_is_refused_at_once_and_no_process_starts(deployment: Deployment) -> None:
    """Rule 6.13: with the person and the reason; with anything to build beside it the run continues."""
    names = (parse_ref(REF),)
    deployment.engine.handle(PausePartitions(refs=names, reason="the till sends half"), actor="user:ann")

    run = deployment.submit("numbers")

    assert run.status is FAILURE
    assert "user:ann" in deployment.log(run.run_id)
    assert "the till sends half" in deployment.log(run.run_id)
    assert deployment.dequeue() == []
    assert goes_on(deployment, deployment.submit("numbers", keys=[DAY, NEXT_DAY]))


def test_a_range_that_is_none_any_more_goes_on_and_says_why(deployment: Deployment) -> None:
    """The partitions were deleted between the choice and the click; what Dagster says of it is Dagster's."""
    deployment.instance.add_dynamic_partitions("shops", ["x", "y"])
    deployment.live("shops@x", "shops@y")
    run = unsubmitted(deployment, deployment.submit("shops", keys=["x", "y"]))
    deployment.instance.delete_dynamic_partition("shops", "y")

    run = deployment.instance.submit_run(run.run_id, deployment.workspace.create_request_context())

    assert goes_on(deployment, run)
    assert "databuild could not check whether other runs build the partitions of this run" in deployment.log(run.run_id)


def test_an_unreachable_store_is_logged_and_the_run_starts(
    deployment: Deployment, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    deployment.live(REF)
    (tmp_path / "garbage.db").write_text("this is no database, however long one looks at it" * 100)

    with monkeypatch.context() as context:
        context.setenv("DATABUILD_DB_URL", f"sqlite:///{tmp_path}/garbage.db")
        run = deployment.submit("numbers")

    assert goes_on(deployment, run)
    damage = f"The build state in sqlite:///{tmp_path}/garbage.db cannot be opened: "
    assert damage in deployment.log(run.run_id)


def test_a_re_execution_does_not_inherit_the_hold(deployment: Deployment) -> None:
    """Dagster copies the tags of the run before."""
    assert goes_on(deployment, deployment.submit("numbers", tags={HOLD_TAG: HELD}))


# Held


def test_a_run_for_what_is_being_built_is_held_and_answered_when_it_is_live(deployment: Deployment) -> None:
    """Rules 8.2, 8.3"""
    deployment.live(f"numbers@{NEXT_DAY}")
    builder = deployment.begin(REF)

    run = deployment.submit("numbers", keys=[DAY, NEXT_DAY])

    assert (run.status, run.tags[HOLD_TAG]) == (QUEUED, HELD)
    assert run_messages.joined([REF]) in deployment.log(run.run_id)
    assert deployment.ledger(run.run_id) == {
        REF: ("joined", "waiting"),
        f"numbers@{NEXT_DAY}": ("reused", "live"),
    }
    deployment.tend_held_runs()
    assert deployment.dequeue() == []

    deployment.succeed(builder)
    deployment.tend_held_runs()

    run = deployment.run(run.run_id)
    assert (run.status, run.tags[HOLD_TAG], run.tags[DELEGATED_TAG]) == (SUCCESS, OVER, "true")
    assert deployment.ledger(run.run_id)[REF] == ("joined", "live")
    assert deployment.dequeue() == []


@pytest.mark.parametrize("coordinator_config", [{"max_concurrent_runs": 1}])
def test_runs_that_wait_take_no_slot_from_others(deployment: Deployment) -> None:
    deployment.begin(REF)
    held = [deployment.submit("numbers") for _ in range(3)]

    other = deployment.submit("numbers", keys=[NEXT_DAY])

    assert {deployment.run(run.run_id).tags[HOLD_TAG] for run in held} == {HELD}
    assert deployment.dequeue() == [other.run_id]


def test_a_run_in_the_queue_is_held_as_soon_as_others_build_what_it_asks_for(deployment: Deployment) -> None:
    """Of fifty that ask at once, the first has not begun when the last one is submitted."""
    runs = [deployment.submit("numbers") for _ in range(3)]
    other = deployment.submit("numbers", keys=[NEXT_DAY])
    assert all(HOLD_TAG not in run.tags for run in [*runs, other])

    builder = deployment.begin(REF)
    deployment.tend_held_runs()
    assert deployment.dequeue() == [other.run_id]
    deployment.succeed(builder)
    deployment.tend_held_runs()

    assert {deployment.run(run.run_id).status for run in runs} == {SUCCESS}
    assert {deployment.ledger(run.run_id)[REF] for run in runs} == {("joined", "live")}


def test_a_run_in_the_queue_that_is_answered_by_what_is_live_needs_no_process(deployment: Deployment) -> None:
    run = deployment.submit("numbers")

    deployment.live(REF)
    deployment.tend_held_runs()

    assert deployment.run(run.run_id).status is SUCCESS
    assert deployment.dequeue() == []


def test_run_monitoring_leaves_a_held_run_alone(deployment: Deployment) -> None:
    _, run = deployment.hold()

    list(execute_run_monitoring_iteration(deployment.workspace, logging.getLogger("tests")))

    assert deployment.run(run.run_id).status is QUEUED


@pytest.mark.parametrize("reason", ["failed", "upstream failed"])
def test_a_run_whose_delegate_fails_fails_as_denied_with_the_reason(deployment: Deployment, reason: str) -> None:
    """Rules 8.3, 8.8: as the step ends what it was denied; the partition is as red as the failed build left it."""
    builder = deployment.begin(f"doubles@{DAY}")
    run = deployment.submit("doubles")

    if reason == "failed":
        deployment.fail(builder)
    else:
        miss = RunMiss(builder, {f"doubles@{DAY}": (REF,)})
        deployment.engine.handle(MissDeps(misses=(miss,)))
        deployment.tend_held_runs()
        assert deployment.run(run.run_id).tags[HOLD_TAG] == HELD
        deployment.fail(deployment.begin(REF))
    deployment.tend_held_runs()

    run = deployment.run(run.run_id)
    assert (run.status, run.tags[OUTCOME_TAG], run.tags[HOLD_TAG]) == (FAILURE, "denied", OVER)
    assert DELEGATED_TAG not in run.tags
    assert f"doubles@{DAY}, built elsewhere, failed: " in deployment.log(run.run_id)
    assert deployment.last_word("doubles") != run.run_id
    assert deployment.ledger(run.run_id) == {f"doubles@{DAY}": ("joined", "failed")}


@pytest.mark.parametrize("by_person", [False, True])
def test_a_run_whose_delegate_is_canceled_starts_and_may_build_it_itself(
    deployment: Deployment, by_person: bool
) -> None:
    """Rule 8.3, decision 0014"""
    builder, run = deployment.hold()

    deployment.engine.handle(CancelJobRuns(job_run_ids=(builder,), keep_wants=not by_person))
    deployment.tend_held_runs()

    assert deployment.run(run.run_id).tags[HOLD_TAG] == RELEASED
    assert deployment.dequeue() == [run.run_id]


def test_a_run_whose_delegate_will_be_tried_again_waits_for_that(deployment: Deployment) -> None:
    """Rule 4.5: not schedulable before its backoff has passed; then the first run builds it."""
    builder, run = deployment.hold()

    deployment.fail(builder, kind="transient")
    deployment.tend_held_runs()
    assert deployment.run(run.run_id).tags[HOLD_TAG] == HELD

    deployment.turn_clock(3600)
    deployment.tend_held_runs(timeout_seconds=2 * 3600)
    assert deployment.run(run.run_id).tags[HOLD_TAG] == RELEASED


def test_a_run_whose_delegate_hangs_fails_in_the_end_and_names_it(deployment: Deployment) -> None:
    """Rule 8.3: a delegation timeout; what is still being built is not painted failed (rule 6.1)."""
    builder, run = deployment.hold()
    deployment.turn_clock(TIMEOUT_SECONDS + 1)

    tend_held_runs(deployment.instance, location="another", delegation_timeout_seconds=TIMEOUT_SECONDS)
    assert deployment.run(run.run_id).status is QUEUED
    deployment.tend_held_runs()

    run = deployment.run(run.run_id)
    assert (run.status, run.tags[HOLD_TAG]) == (FAILURE, OVER)
    assert f"job run {builder} of numbers@{DAY} has not ended" in deployment.log(run.run_id)
    assert deployment.ledger(run.run_id) == {REF: ("joined", "given up")}
    assert deployment.last_word("numbers") != run.run_id


def test_a_run_that_a_person_cancels_while_it_is_held_waits_no_longer(deployment: Deployment) -> None:
    _, run = deployment.hold()

    deployment.instance.run_coordinator.cancel_run(run.run_id)
    deployment.tend_held_runs()

    run = deployment.run(run.run_id)
    assert (run.status, run.tags[HOLD_TAG]) == (dg.DagsterRunStatus.CANCELED, OVER)
    assert deployment.ledger(run.run_id) == {REF: ("joined", "given up")}


def test_a_held_run_that_is_deleted_leaves_nothing_behind(deployment: Deployment) -> None:
    builder, run = deployment.hold()

    deployment.instance.delete_run(run.run_id)
    deployment.tend_held_runs()
    deployment.succeed(builder)
    deployment.tend_held_runs()

    assert deployment.ledger(run.run_id) == {REF: ("joined", "live")}
    assert deployment.instance.get_run_by_id(run.run_id) is None


def test_a_held_run_starts_when_its_asset_is_no_longer_ours(deployment: Deployment) -> None:
    _, run = deployment.hold()
    known = deployment.engine.queries.datasets.all("tests").values()

    register(deployment.engine, "tests", tuple(spec for spec in known if spec.asset != "numbers"))
    deployment.tend_held_runs()

    assert deployment.run(run.run_id).tags[HOLD_TAG] == RELEASED


def test_a_held_run_that_the_daemon_has_started_all_the_same_is_left_to_its_step(deployment: Deployment) -> None:
    """Its process does what the guard in the step says."""
    builder, run = deployment.hold()
    starting = dg.DagsterEvent(dg.DagsterEventType.RUN_STARTING.value, run.job_name)
    deployment.instance.report_dagster_event(starting, run.run_id)

    deployment.succeed(builder)
    deployment.tend_held_runs()

    assert deployment.run(run.run_id).status is dg.DagsterRunStatus.STARTING
    assert deployment.run(run.run_id).tags[HOLD_TAG] == RELEASED


# Limits


@pytest.mark.parametrize(
    ("settings", "coordinator_config"),
    [
        ({"concurrency": {"runs": {"tag_concurrency_limits": [{"key": "team", "limit": 1}]}}}, {}),
        ({"concurrency": {"runs": {"max_concurrent_runs": 5}}}, {}),
        ({"concurrency": {"runs": {"tag_concurrency_limits": []}}}, {}),
        ({}, {"tag_concurrency_limits": [{"key": "team", "limit": 1}]}),
    ],
    ids=["concurrency > runs", "concurrency without tags", "concurrency with none", "of the coordinator"],
)
def test_limits_of_the_user_and_ours_hold_together(
    deployment: Deployment, settings: dict[str, Any], coordinator_config: dict[str, Any]
) -> None:
    deployment.begin(REF)
    held = deployment.submit("numbers", tags={"team": "a"})
    one, other = (deployment.submit("numbers", keys=[NEXT_DAY], tags={"team": "a"}) for _ in range(2))

    assert deployment.run(held.run_id).tags[HOLD_TAG] == HELD
    limits_teams = "team" in str(settings) + str(coordinator_config)
    assert sorted(deployment.dequeue()) == sorted([one.run_id] if limits_teams else [one.run_id, other.run_id])


# Tried out


def test_sensors_and_schedules_that_are_tried_out_in_the_ui_record_nothing(deployment: Deployment) -> None:
    deployment.engine.handle(CreateWants(wants=((REF,),)))
    seq = deployment.engine.queries.events.head().seq

    tried = [
        deployment.try_out("sensorDryRun", f'sensorName: "{ORCHESTRATOR}"', "cursor: null"),
        deployment.try_out("sensorDryRun", 'sensorName: "wanting_sensor"', "cursor: null"),
        deployment.try_out("scheduleDryRun", 'scheduleName: "wanting_schedule"', "timestamp: 1767225600.0"),
    ]

    due, *wanted = (evaluation["skipReason"] for evaluation in tried)
    assert due.startswith("Only a test: nothing is launched by it.")
    assert wanted == ["Only a test: it would want whole."] * 2
    assert deployment.engine.queries.events.head().seq == seq
    assert deployment.instance.get_runs() == []


# Again, at once, and after a crash


def unsubmitted(deployment: Deployment, run: dg.DagsterRun) -> dg.DagsterRun:
    """The same request as a run that is not submitted yet."""
    tags = {key: value for key, value in run.tags.items() if not key.startswith("databuild/")}
    again = run._replace(run_id=deployment.engine.new_id(), status=dg.DagsterRunStatus.NOT_STARTED, tags=tags)
    return deployment.instance.add_run(again)


@pytest.mark.parametrize("is_live", [True, False])
def test_a_run_that_is_submitted_again_stays_what_it_is(deployment: Deployment, is_live: bool) -> None:
    builder = deployment.begin(REF)
    if is_live:
        deployment.succeed(builder)
    run = deployment.submit("numbers")
    before = len(deployment.instance.all_logs(run.run_id))

    again = deployment.instance.submit_run(run.run_id, deployment.workspace.create_request_context())

    assert again.status is run.status is (SUCCESS if is_live else QUEUED)
    assert len(deployment.instance.all_logs(run.run_id)) == before
    assert deployment.run(run.run_id).tags == run.tags


def test_of_several_ticks_at_once_one_answers(deployment: Deployment) -> None:
    builder = deployment.begin(REF)
    runs = [deployment.submit("numbers") for _ in range(3)]
    deployment.succeed(builder)

    with ThreadPoolExecutor(4) as threads:
        list(threads.map(lambda _: deployment.tend_held_runs(), range(8)))

    for run in runs:
        assert len(deployment.events(run.run_id, dg.DagsterEventType.RUN_SUCCESS)) == 1
        assert len(deployment.events(run.run_id, dg.DagsterEventType.RUN_START)) == 1


class Crash(BaseException):
    """The process ends here."""


def crash_at(deployment: Deployment, patch: pytest.MonkeyPatch, number: int) -> None:
    """The process dies in place of its nth write to Dagster; the store is left as it is then."""
    left = [number]

    def dying(write: Any) -> Any:
        def write_or_die(*arguments: Any, **named: Any) -> Any:
            left[0] -= 1
            if left[0] == 0:
                raise Crash
            return write(*arguments, **named)

        return write_or_die

    for name in ("report_dagster_event", "add_run_tags"):
        patch.setattr(deployment.instance, name, dying(getattr(deployment.instance, name)))


@pytest.mark.long("a crash at each of up to thirty writes")
@pytest.mark.parametrize("then", ["live", "live later", "released"])
def test_a_crash_between_any_two_steps_is_repaired_by_the_next_tick(
    deployment: Deployment, then: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The run ends as without the crash: answered, or started, and never left behind."""
    template = deployment.submit("numbers")
    for number in range(1, MAX_WRITES):
        if deployment.engine.queries.canonical.states([REF])[REF] is not None:
            deployment.engine.handle(TaintPartitions(refs=(REF,), reason="again"))
        builder = deployment.begin(REF)
        if then == "live":
            deployment.succeed(builder)
        run = unsubmitted(deployment, template)
        context = dg.SubmitRunContext(run, deployment.workspace.create_request_context())
        crashed = False
        with monkeypatch.context() as patch:
            crash_at(deployment, patch, number)
            try:
                deployment.instance.run_coordinator.submit_run(context)
            except Crash:
                crashed = True
            if not crashed and then != "live":
                end(deployment, builder, then)
                try:
                    deployment.tend_held_runs()
                except Crash:
                    crashed = True
        if deployment.run(run.run_id).tags.get(HOLD_TAG) is None:
            # It died before its first word: as with Dagster's own coordinator, the submitter has to ask again.
            assert number == 1
        if deployment.engine.queries.canonical.states([REF])[REF] is InstanceState.BUILDING:
            end(deployment, builder, then)
        deployment.turn_clock(SUBMITTING_SECONDS + 1)
        deployment.tend_held_runs()
        deployment.tend_held_runs()

        if number > 1:
            assert deployment.run(run.run_id).status is (QUEUED if then == "released" else SUCCESS), number
            assert deployment.run(run.run_id).tags[HOLD_TAG] == (RELEASED if then == "released" else OVER), number
        if deployment.engine.queries.canonical.states([REF])[REF] is not InstanceState.LIVE:
            deployment.live(REF)
        if not crashed:
            assert number > 3
            return
    raise AssertionError(f"still crashing after {MAX_WRITES} writes")


def end(deployment: Deployment, builder: str, how: str) -> None:
    if how == "released":
        deployment.engine.handle(CancelJobRuns(job_run_ids=(builder,), keep_wants=True))
    else:
        deployment.succeed(builder)


@pytest.mark.long("only a new process shows what an import brings")
def test_dagsters_processes_import_the_coordinator_without_spark_or_pandas() -> None:
    code = (
        "import sys, databuild_dagster; databuild_dagster.DatabuildRunCoordinator\n"
        "import databuild_dagster.bindings.orchestration.held_runs\n"
        "print([name for name in ('pyspark', 'pandas', 'pyarrow') if name in sys.modules])"
    )

    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=240, check=True)

    assert done.stdout.strip() == "[]"


# Runs that commands execute themselves


def executed_by_a_command(deployment: Deployment) -> dg.DagsterRun:
    """A run that another process of this machine executes, and that beats."""
    tags = {PROCESS_TAG: this_process()}
    run = create_run_for_test(deployment.instance, status=dg.DagsterRunStatus.STARTED, tags=tags)
    deployment.engine.beat([run.run_id])
    return run


@pytest.mark.parametrize(
    ("settings", "coordinator_config"),
    [({"concurrency": {"runs": {"max_concurrent_runs": 1}}}, {}), ({}, {"max_concurrent_runs": 1})],
    ids=["concurrency", "of the coordinator"],
)
def test_the_runs_of_commands_do_not_fill_the_queue(deployment: Deployment) -> None:
    """`max_concurrent_runs` is a limit of the runs that the queue starts."""
    for _ in range(2):
        executed_by_a_command(deployment)
    first, second = deployment.submit("numbers"), deployment.submit("numbers", keys=[NEXT_DAY])

    assert deployment.dequeue() == [first.run_id]
    assert deployment.dequeue() == [first.run_id], "the queue's own limit holds"
    assert deployment.run(second.run_id).status is QUEUED


@pytest.mark.parametrize("settings", [{"run_monitoring": {"enabled": True}}])
def test_run_monitoring_leaves_the_runs_of_commands_alone_while_they_beat(deployment: Deployment) -> None:
    """Rule 6.9"""
    deployment.instance._run_launcher = Unknowing(WorkerStatus.NOT_FOUND)
    run = executed_by_a_command(deployment)
    create_daemon_of_type(QueuedRunCoordinatorDaemon.daemon_type(), deployment.instance)

    list(execute_run_monitoring_iteration(deployment.workspace, logging.getLogger("tests")))
    assert deployment.run(run.run_id).status is dg.DagsterRunStatus.STARTED

    deployment.turn_clock(SILENT_SECONDS + 60)
    list(execute_run_monitoring_iteration(deployment.workspace, logging.getLogger("tests")))
    assert deployment.run(run.run_id).status is FAILURE
