"""What Dagster does not promise and the package uses; the tests of the callers use the names that are missing here."""

import logging
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

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


def test_a_run_is_left_out_of_the_list_of_runs_and_its_checks_out_of_its_target(instance: dg.DagsterInstance) -> None:
    check = dg.AssetCheckKey(dg.AssetKey("a"), "c")
    run = instance.add_run(dg.DagsterRun("job", tags={"a": "b"}, asset_check_selection=frozenset({check})))

    dagster_storage.leave_out_of_run_list(instance, run.run_id)
    dagster_storage.target_assets_alone(instance, run)

    assert instance.get_runs(dg.RunsFilter(exclude_subruns=True)) == []
    (found,) = instance.get_runs(dg.RunsFilter(tags={"a": "b"}))
    assert (found.run_id, found.asset_check_selection) == (run.run_id, None)


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
