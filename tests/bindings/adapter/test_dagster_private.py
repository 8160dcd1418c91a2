"""Every name that Dagster does not promise still does what we use it for; an upgrade breaks here first."""

import logging
import os
import subprocess
import sys
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Annotated, Any

import dagster as dg
import pytest

from databuild_dagster.bindings.adapter import dagster_private as private
from databuild_dagster.bindings.adapter import dagster_storage
from databuild_dagster.bindings.display.partition_status import NO_RUN
from tests.support.dagster_files import fresh_instance

daily = dg.DailyPartitionsDefinition(start_date="2013-01-01", end_date="2014-01-01")


@pytest.fixture
def instance() -> Iterator[dg.DagsterInstance]:
    with fresh_instance() as instance:
        yield instance


def run(job: dg.JobDefinition, instance: dg.DagsterInstance, tags: dict[str, str]) -> list[dg.DagsterEvent]:
    config: dict[str, object] = {"execution": {"config": {"in_process": {}}}}
    created = instance.create_run_for_job(job, tags=tags, run_config=config)
    return list(private.execute_run_iterator(private.InMemoryJob(job), created, instance))


def test_the_implicit_asset_job_exists_and_chooses_its_executor_by_config() -> None:
    @dg.asset
    def a() -> None: ...

    job = dg.Definitions(assets=[a]).get_repository_def().get_job(private.IMPLICIT_ASSET_JOB_NAME)

    assert job.executor_def.name == "multi_or_in_process_executor"


def test_a_direct_materialize_has_an_executor_of_its_own_and_a_run_of_a_job_has_not() -> None:
    seen: list[bool] = []

    @dg.asset
    def a(context: dg.AssetExecutionContext) -> None:
        seen.append(context.job_def.executor_def is private.execute_in_process_executor)

    job = dg.Definitions(assets=[a]).get_repository_def().get_job(private.IMPLICIT_ASSET_JOB_NAME)
    with fresh_instance() as instance:
        dg.materialize([a], instance=instance)
        job.execute_in_process(instance=instance)
        run(job, instance, {})

    assert seen == [True, True, False]


def test_an_observed_output_materializes_nothing_and_lets_later_steps_run(
    instance: dg.DagsterInstance,
) -> None:
    @dg.multi_asset(specs=[dg.AssetSpec("first", skippable=True)])
    def first() -> Iterator[dg.Output[None]]:
        yield dg.Output(None, output_name="first", metadata=private.OBSERVED)

    @dg.asset(deps=["first"])
    def second() -> None: ...

    job = dg.Definitions(assets=[first, second]).get_repository_def().get_job(private.IMPLICIT_ASSET_JOB_NAME)
    events = run(job, instance, {})

    materialized = [event.asset_key for event in events if event.is_step_materialization]
    assert materialized == [dg.AssetKey("second")]


def test_partitions_and_mappings_survive_serialization() -> None:
    snap: Any = private.PartitionsSnap.from_def(daily)
    read_back: Any = private.deserialize_value(private.serialize_value(snap))
    assert read_back.get_partitions_definition() == daily
    mapping: Any = dg.TimeWindowPartitionMapping(start_offset=-1)
    assert private.deserialize_value(private.serialize_value(mapping)) == mapping
    assert isinstance(private.infer_partition_mapping(None, daily, daily), dg.TimeWindowPartitionMapping)


def test_a_planned_event_of_a_run_that_does_not_exist_is_neither_red_nor_in_progress(
    instance: dg.DagsterInstance,
) -> None:
    key = dg.AssetKey("a")
    event = private.DagsterEvent.build_asset_materialization_planned_event(
        "job",
        "a",
        private.AssetMaterializationPlannedData(key, partition="2013-01-01", partitions_subset=None),
    )
    instance.report_dagster_event(event, NO_RUN, logging.DEBUG)

    log = instance.event_log_storage
    attempts = log.get_latest_asset_partition_materialization_attempts_without_materializations(key)
    assert attempts["2013-01-01"][0] == NO_RUN
    assert instance.get_run_by_id(NO_RUN) is None


def test_one_planned_event_per_run_is_read_when_the_run_is_made(
    instance: dg.DagsterInstance, monkeypatch: pytest.MonkeyPatch
) -> None:
    @dg.asset(partitions_def=daily)
    def a() -> None: ...

    job = dg.Definitions(assets=[a]).get_repository_def().get_job(private.IMPLICIT_ASSET_JOB_NAME)
    tags = {
        private.ASSET_PARTITION_RANGE_START_TAG: "2013-01-01",
        private.ASSET_PARTITION_RANGE_END_TAG: "2013-01-03",
    }

    def planned() -> int:
        made = instance.create_run_for_job(job, tags=tags)
        return len(instance.all_logs(made.run_id, of_type=dg.DagsterEventType.ASSET_MATERIALIZATION_PLANNED))

    monkeypatch.delenv(private.ONE_PLANNED_EVENT_PER_RUN, raising=False)
    assert planned() == 3
    monkeypatch.setenv(private.ONE_PLANNED_EVENT_PER_RUN, "1")
    assert planned() == 1


def test_the_value_of_a_plain_asset_is_loaded_through_its_own_io_manager(
    instance: dg.DagsterInstance,
) -> None:
    @dg.asset(partitions_def=daily)
    def a() -> int:
        return 7

    definitions = dg.Definitions(assets=[a])
    graph = definitions.get_repository_def().asset_graph
    assert isinstance(graph, private.AssetGraph)
    assert isinstance(graph.get(dg.AssetKey("a")), private.AssetNode)
    run(
        definitions.get_repository_def().get_job("__ASSET_JOB"),
        instance,
        {private.PARTITION_NAME_TAG: "2013-01-01"},
    )

    with private.AssetValueLoader({dg.AssetKey("a"): graph.get(dg.AssetKey("a")).assets_def}, instance) as loader:
        assert loader.load_asset_value("a", partition_key="2013-01-01") == 7


def test_an_instance_tells_its_storage(instance: dg.DagsterInstance) -> None:
    assert isinstance(instance.run_storage, dagster_storage.SqliteRunStorage)
    assert isinstance(dg.DagsterInstance.ephemeral().run_storage, dagster_storage.InMemoryRunStorage)
    assert isinstance(instance, private.DynamicPartitionsStore)


def test_a_run_is_left_out_of_the_list_of_runs_and_its_checks_out_of_its_target(instance: dg.DagsterInstance) -> None:
    check = dg.AssetCheckKey(dg.AssetKey("a"), "c")
    run = instance.add_run(dg.DagsterRun("job", tags={"a": "b"}, asset_check_selection=frozenset({check})))

    dagster_storage.leave_out_of_run_list(instance, run.run_id)
    dagster_storage.target_assets_alone(instance, run)

    assert instance.get_runs(dg.RunsFilter(exclude_subruns=True)) == []
    (found,) = instance.get_runs(dg.RunsFilter(tags={"a": "b"}))
    assert (found.run_id, found.asset_check_selection) == (run.run_id, None)


def test_telemetry_can_be_switched_off_in_one_process(tmp_path: Path) -> None:
    (tmp_path / "dagster.yaml").write_text("")

    with dg.DagsterInstance.from_config(str(tmp_path)) as instance:
        assert instance.telemetry_enabled

        private.send_no_telemetry(instance)

        assert not instance.telemetry_enabled


def test_definitions_are_found_and_loaded_as_dagster_does(tmp_path: Path) -> None:
    file = tmp_path / "some_definitions.py"
    file.write_text("import dagster as dg\ndefs = dg.Definitions()\n")
    opts = dagster_storage.WorkspaceOpts(python_file=[str(file)])

    (origin,) = dagster_storage.workspace_opts_to_load_target(opts).create_origins()
    assert not isinstance(origin, dagster_storage.GrpcServerCodeLocationOrigin)
    (target,) = dagster_storage.get_loadable_targets(
        python_file=str(file),
        module_name=None,
        package_name=None,
        autoload_defs_module_name=None,
        working_directory=None,
        attribute=None,
        resolve_lazy_defs=True,
    )
    assert isinstance(private.repository_def_from_target_def(target.target_definition), dg.RepositoryDefinition)


def test_tags_are_spelled_as_dagster_spells_them() -> None:
    assert private.PARTITION_NAME_TAG == "dagster/partition"
    assert private.ASSET_PARTITION_RANGE_START_TAG == "dagster/asset_partition_range_start"
    assert private.ASSET_PARTITION_RANGE_END_TAG == "dagster/asset_partition_range_end"
    assert private.BACKFILL_ID_TAG == "dagster/backfill"
    assert private.MULTIDIMENSIONAL_PARTITION_PREFIX == "dagster/partition/"
    assert private.SCHEDULE_NAME_TAG == "dagster/schedule_name"
    assert private.SENSOR_NAME_TAG == "dagster/sensor_name"
    assert private.AUTOMATION_CONDITION_TAG == "dagster/from_automation_condition"
    assert private.AUTO_MATERIALIZE_TAG == "dagster/auto_materialize"
    assert private.PRIORITY_TAG == "dagster/priority"
    assert private.DATA_VERSION_TAG == "dagster/data_version"
    assert private.DATA_VERSION_IS_USER_PROVIDED_TAG == "dagster/data_version_is_user_provided"


def test_dimensions_of_a_key_become_tags() -> None:
    key = dg.MultiPartitionKey({"day": "2013-01-01", "region": "eu"})
    assert private.get_tags_from_multi_partition_key(key)["dagster/partition/region"] == "eu"
    tags = {"dagster/partition/region": "eu", "dagster/partition/day": "2013-01-01"}
    assert private.get_multipartition_key_from_tags(tags) == key
    both = dg.MultiPartitionsDefinition({"day": daily, "region": dg.StaticPartitionsDefinition(["eu"])})
    assert all(isinstance(dimension, private.PartitionDimensionDefinition) for dimension in both.partitions_defs)


def test_interruption_has_a_name_and_beta_warnings_can_be_silenced() -> None:
    assert issubclass(private.DagsterExecutionInterruptedError, BaseException)
    with private.quiet_beta_warnings():
        pass


def test_asset_events_of_a_run_can_be_recorded_from_outside_of_it(instance: dg.DagsterInstance) -> None:
    made = instance.add_run(dg.DagsterRun("job"))
    key = dg.AssetKey("a")
    observed = private.AssetObservationData(dg.AssetObservation(key, partition="x"))
    materialized = private.StepMaterializationData(dg.AssetMaterialization(key, partition="x"))
    reported = [
        (dg.DagsterEventType.ASSET_OBSERVATION, observed),
        (dg.DagsterEventType.ASSET_MATERIALIZATION, materialized),
        (
            dg.DagsterEventType.ENGINE_EVENT,
            private.EngineEventData({"link": dg.MetadataValue.dagster_run(made.run_id)}),
        ),
        (dg.DagsterEventType.RUN_START, None),
        (dg.DagsterEventType.RUN_SUCCESS, None),
    ]

    for kind, data in reported:
        event = private.DagsterEvent(kind.value, "job", event_specific_data=data, step_key="a")
        instance.report_dagster_event(event, made.run_id)

    assert instance.get_materialized_partitions(key) == {"x"}
    ended = instance.get_run_by_id(made.run_id)
    assert ended is not None
    assert ended.status is dg.DagsterRunStatus.SUCCESS


def test_the_run_queue_asks_the_coordinator_for_its_limits() -> None:
    coordinator = dg.QueuedRunCoordinator(tag_concurrency_limits=[{"key": "a", "limit": 1}])
    config = coordinator.get_run_queue_config()
    assert isinstance(config, dagster_storage.RunQueueConfig)
    assert config._replace(tag_concurrency_limits=[]).max_concurrent_runs == config.max_concurrent_runs


def test_the_plan_of_a_run_says_which_steps_make_which_assets(instance: dg.DagsterInstance) -> None:
    @dg.asset
    def a() -> None: ...

    @dg.asset_check(asset=a)
    def looks_right() -> dg.AssetCheckResult:
        return dg.AssetCheckResult(passed=True)

    job = dg.Definitions(assets=[a], asset_checks=[looks_right]).get_repository_def().get_job("__ASSET_JOB")
    made = instance.create_run_for_job(job)
    assert made.execution_plan_snapshot_id is not None

    plan = instance.get_execution_plan_snapshot(made.execution_plan_snapshot_id)

    made_by = {step.key: [out.properties.asset_key for out in step.outputs if out.properties] for step in plan.steps}
    assert made_by == {"a": [dg.AssetKey("a")], "a_looks_right": [None]}
    assert set(plan.step_keys_to_execute) == {"a", "a_looks_right"}


def test_an_input_keeps_the_name_of_the_key_it_was_written_for() -> None:
    @dg.multi_asset(specs=[dg.AssetSpec("own", deps=[dg.AssetKey(["a-b", "c.d"])])])
    def own() -> None: ...

    renamed = own.with_attributes(asset_key_replacements={dg.AssetKey(["a-b", "c.d"]): dg.AssetKey("other")})

    name = private.stringify_asset_key_to_input_name(dg.AssetKey(["a-b", "c.d"]))
    assert renamed.node_keys_by_input_name == {name: dg.AssetKey("other")}


def test_a_sensor_that_evaluates_conditions_where_the_code_is_says_so() -> None:
    there = dg.AutomationConditionSensorDefinition("there", target="*", use_user_code_server=True)
    in_the_daemon = dg.AutomationConditionSensorDefinition("in_the_daemon", target="*")

    assert there.sensor_type is private.SensorType.AUTOMATION
    assert in_the_daemon.sensor_type is private.SensorType.AUTO_MATERIALIZE


def test_a_condition_of_dagster_s_can_be_labelled() -> None:
    condition = dg.AutomationCondition.missing() & dg.AutomationCondition.newly_updated()

    assert isinstance(condition, private.BuiltinAutomationCondition)
    assert condition.with_label("ours").get_label() == "ours"


def test_a_condition_of_ours_is_shown_the_instance_and_partitions(instance: dg.DagsterInstance) -> None:
    seen: list[Any] = []

    class First(dg.AutomationCondition[dg.AssetKey]):
        def evaluate(self, context: dg.AutomationContext[dg.AssetKey]) -> dg.AutomationResult[dg.AssetKey]:
            candidates = context.candidate_subset
            seen.append((context.asset_graph_view.instance, candidates.is_partitioned, candidates.is_empty))
            first = min(candidates.expensively_compute_partition_keys())
            return dg.AutomationResult(context, candidates.compute_intersection_with_partition_keys({first}))

    @dg.asset(partitions_def=daily, automation_condition=First())
    def a() -> None: ...

    requested = dg.evaluate_automation_conditions([a], instance).get_requested_partitions(dg.AssetKey("a"))

    assert requested == {"2013-01-01"}
    assert seen == [(instance, True, False)]


def test_a_translation_of_yaml_changes_a_spec() -> None:
    class Settings(dg.Component, dg.Model, dg.Resolvable):
        translation: Annotated[
            private.TranslationFn[None], private.TranslationFnResolver[None](lambda _: {"shop": "north"})
        ]

        def build_defs(self, context: dg.ComponentLoadContext) -> dg.Definitions:
            return dg.Definitions()

    settings = Settings.resolve_from_yaml("translation: {key_prefix: '{{ shop }}', tags: {tier: gold}}")
    spec = settings.translation(dg.AssetSpec("orders", tags={"of": "shop"}), None)

    assert spec.key == dg.AssetKey(["north", "orders"])
    assert spec.tags == {"of": "shop", "tier": "gold"}


def test_a_component_is_loaded_in_a_tree_that_says_which_project_it_is_of() -> None:
    context = private.ComponentTree.for_test().load_context

    assert context.component_tree.state_tracker is context.component_tree.state_tracker
    assert isinstance(context.component_loc.get_display_key(context.defs_module_path), str)


def test_many_events_are_written_at_once_where_all_runs_are_asked_about(instance: dg.DagsterInstance) -> None:
    log = instance.event_log_storage
    assert isinstance(log, dagster_storage.SqlEventLogStorage)
    assert isinstance(dg.DagsterInstance.ephemeral().event_log_storage, dagster_storage.SqlEventLogStorage)
    run = instance.add_run(dg.DagsterRun("job", tags={private.MAX_RETRIES_TAG: "0"}))
    with pytest.raises(private.DagsterRunAlreadyExists):
        instance.add_run(dg.DagsterRun("job", run_id=run.run_id))
    key = dg.AssetKey("a")
    planned = private.AssetMaterializationPlannedData(key, partition="x", partitions_subset=None)
    event = private.DagsterEvent.build_asset_materialization_planned_event("job", "a", planned)
    entry = dg.EventLogEntry(
        None, logging.DEBUG, "", run.run_id, 1.0, step_key="a", job_name="job", dagster_event=event
    )

    with log.index_transaction() as connection:
        connection.execute(dagster_storage.SqlEventLogStorageTable.insert(), [log._event_to_row(entry)])
    log.store_asset_event(entry, 0)

    found = log.get_latest_asset_partition_materialization_attempts_without_materializations(key)
    assert {partition: run_id for partition, (run_id, _) in found.items()} == {"x": run.run_id}
    (record,) = instance.get_asset_records([key])
    assert record.asset_entry.last_run_id == run.run_id
    log.wipe_asset_cached_status(key)


def test_versions_of_inputs_are_tags_that_dagster_reads_back(instance: dg.DagsterInstance) -> None:
    key = dg.AssetKey(["up", "stream"])
    assert private.CODE_VERSION_TAG == "dagster/code_version"
    assert private.NULL_EVENT_POINTER == "NULL"
    assert private.get_input_data_version_tag(key) == "dagster/input_data_version/up/stream"
    assert private.get_input_event_pointer_tag(key) == "dagster/input_event_pointer/up/stream"
    tags = {private.DATA_VERSION_TAG: "one"}
    instance.report_runless_asset_event(dg.AssetMaterialization(key, tags=tags))
    record = instance.get_latest_data_version_record(key)
    assert record is not None
    version = private.extract_data_version_from_entry(record.event_log_entry)
    assert version is not None
    assert version.value == "one"


WITHOUT_A_NAME = """
import dagster._core.definitions.data_version as module
del module.NULL_EVENT_POINTER
from databuild_dagster.cli.main import run
raise SystemExit(run(["build", "a", "-f", "definitions.py"]))
"""


@pytest.mark.long("a process that imports a name which Dagster lacks")
def test_a_dagster_without_one_of_these_names_is_said_in_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "definitions.py").write_text(
        "import databuild_dagster\ndefs = databuild_dagster.build_definitions([])\n"
    )
    environment = {**os.environ, "DAGSTER_HOME": str(tmp_path)}

    done = subprocess.run(
        [sys.executable, "-c", WITHOUT_A_NAME],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )

    assert done.returncode == 2
    assert f"Dagster {dg.__version__} lacks a name that this version of databuild_dagster uses" in done.stderr
    assert "cannot import name 'NULL_EVENT_POINTER'" in done.stderr
    assert "pip install 'dagster>=1.12,<1.14'" in done.stderr
    assert "Traceback" not in done.stderr


def test_windows_go_on_from_any_moment_and_have_the_keys_of_the_definition() -> None:
    weeks = dg.WeeklyPartitionsDefinition("2024-01-01", end_date="2024-02-01", timezone="Europe/Berlin")
    listed = weeks.get_partition_keys()
    moment = weeks.time_window_for_partition_key(listed[1]).start.timestamp()

    found = [private.key_of_window(weeks, window.start) for window in islice(private.windows_from(weeks, moment), 20)]

    assert found[:2] == list(listed[1:3])
    assert found[-1] > "2024-05"
    for inside in (moment, moment + 7 * 86_400 - 1):
        assert private.window_start_before(weeks, inside).timestamp() == moment
