"""Every name that Dagster does not promise still does what we use it for; an upgrade breaks here first."""

import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import dagster as dg
import pytest

from databuild_dagster.bindings import dagster_private as private
from databuild_dagster.bindings.painting import NO_RUN

daily = dg.DailyPartitionsDefinition(start_date="2013-01-01", end_date="2014-01-01")


@pytest.fixture
def instance() -> Iterator[dg.DagsterInstance]:
    with dg.instance_for_test() as instance:
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


def test_a_planned_event_of_a_run_that_does_not_exist_is_neither_failed_nor_in_progress(
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
    assert isinstance(instance.run_storage, private.SqliteRunStorage)
    assert isinstance(dg.DagsterInstance.ephemeral().run_storage, private.InMemoryRunStorage)
    assert isinstance(instance, private.DynamicPartitionsStore)


def test_definitions_are_found_and_loaded_as_dagster_does(tmp_path: Path) -> None:
    file = tmp_path / "some_definitions.py"
    file.write_text("import dagster as dg\ndefs = dg.Definitions()\n")
    opts = private.WorkspaceOpts(python_file=[str(file)])

    (origin,) = private.workspace_opts_to_load_target(opts).create_origins()
    assert not isinstance(origin, private.GrpcServerCodeLocationOrigin)
    (target,) = private.get_loadable_targets(
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
    both = dg.MultiPartitionsDefinition({"day": daily, "region": dg.StaticPartitionsDefinition(["eu"])})
    assert all(isinstance(each, private.PartitionDimensionDefinition) for each in both.partitions_defs)


def test_interruption_has_a_name_and_beta_warnings_can_be_silenced() -> None:
    assert issubclass(private.DagsterExecutionInterruptedError, BaseException)
    with private.quiet_beta_warnings():
        pass
