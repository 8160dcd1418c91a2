"""Dagster shows live data also where the process died between our log's record and Dagster's (rule 6.9)."""

from typing import Any

import dagster as dg
import pandas as pd
import pytest
from dagster._core.execution.plan.objects import StepFailureData, UserFailureData
from dagster._utils.error import SerializableErrorInfo

from databuild_dagster import BuildContext, databuild_asset
from databuild_dagster.bindings.adapter.dagster_private import IMPLICIT_ASSET_JOB_NAME, DagsterEvent
from databuild_dagster.bindings.adapter.run_tags import LAUNCH_TAG, WORKER_TAG
from databuild_dagster.bindings.claims.launcher import IN_PROCESS
from databuild_dagster.bindings.registry.instance import warehouse_of
from databuild_dagster.engine.holders import this_process
from databuild_dagster.model.commands import SucceedJobRuns
from databuild_dagster.model.events import ManifestFact, OutputFact, RunSuccess
from databuild_dagster.model.refs import derive_partition_uuid
from databuild_dagster.warehouse.layout import Warehouse
from tests.support.dead_process import dead_process
from tests.support.instances import write_instance

from ..conftest import claim

REF = "numbers@2013-01-01"


@databuild_asset(partitions_def=dg.DailyPartitionsDefinition("2013-01-01", end_date="2014-01-01"))
def numbers(context: BuildContext) -> pd.DataFrame:
    return pd.DataFrame({"day": [context.partition_key]})


@pytest.fixture
def site(deploy: Any) -> Any:
    return deploy(numbers)


def built_and_not_reported(site: Any, holder: str) -> dg.DagsterRun:
    """A launch that has reported its success to our log, and Dagster of nothing but its start."""
    launch_id = site.engine.new_id()
    run = site.instance.create_run_for_job(
        site.repository.get_job(IMPLICIT_ASSET_JOB_NAME).get_subset(asset_selection={dg.AssetKey("numbers")}),
        run_config=IN_PROCESS,
        tags={"dagster/partition": "2013-01-01", LAUNCH_TAG: launch_id, WORKER_TAG: holder},
        asset_selection=frozenset({dg.AssetKey("numbers")}),
    )
    event = DagsterEvent(event_type_value=dg.DagsterEventType.PIPELINE_START.value, job_name=run.job_name)
    site.instance.report_dagster_event(event, run_id=run.run_id)
    (job_run,) = claim(site.engine, REF, holder=holder, launch_id=launch_id, dagster_run_id=run.run_id)
    warehouse, uuid = Warehouse(warehouse_of(site.instance)), derive_partition_uuid(job_run, REF)
    rows = pd.DataFrame({"day": ["2013-01-01"]})
    manifest = write_instance(rows, warehouse, ref=REF, uuid=uuid, job_run=job_run)
    fact = ManifestFact(
        state=manifest.state.value, uri=warehouse.manifest_path("numbers", uuid), files=1, rows=1, bytes=manifest.bytes
    )
    site.engine.handle(SucceedJobRuns(runs=(RunSuccess(job_run, (OutputFact(ref=REF, manifest=fact),)),)))
    return run


def status(site: Any, run: dg.DagsterRun) -> dg.DagsterRunStatus:
    found: dg.DagsterRunStatus = site.instance.get_run_by_id(run.run_id).status
    return found


@pytest.mark.parametrize("has_ended", [False, True], ids=["started", "ended by a code server"])
def test_the_builds_of_a_dead_process_are_shown_and_its_dagster_run_ends(site: Any, has_ended: bool) -> None:
    run = built_and_not_reported(site, dead_process())
    if has_ended:
        site.instance.report_run_failed(run)
    assert site.materialized("numbers") == []

    site.build()

    assert site.materialized("numbers") == ["2013-01-01"]
    assert status(site, run) is dg.DagsterRunStatus.FAILURE
    assert site.colours("numbers") == {"2013-01-01": "green"}


@pytest.mark.parametrize(
    ("own_failure", "shown"), [(None, ["2013-01-01"]), (UserFailureData(label="intentional-failure"), [])]
)
def test_a_build_whose_step_could_not_write_to_dagsters_database_is_shown(
    site: Any, own_failure: Any, shown: Any
) -> None:
    """A step that raises its own `Failure` has reported before."""
    run = built_and_not_reported(site, this_process())
    locked = SerializableErrorInfo("database is locked", [], "OperationalError")
    event = DagsterEvent(
        event_type_value=dg.DagsterEventType.STEP_FAILURE.value,
        job_name=run.job_name,
        step_key="numbers",
        event_specific_data=StepFailureData(locked, own_failure),
    )
    site.instance.report_dagster_event(event, run_id=run.run_id)
    site.instance.report_run_failed(run)

    site.build()

    assert site.materialized("numbers") == shown


def test_a_live_process_reports_its_builds_itself(site: Any) -> None:
    run = built_and_not_reported(site, this_process())

    site.build()

    assert site.materialized("numbers") == []
    assert status(site, run) is dg.DagsterRunStatus.STARTED
