"""Finished output of a dead process is adopted; the rest is built again, and its files are removed (rule 6.9)."""

from pathlib import Path
from typing import Any

import dagster as dg
import pandas as pd
import pytest

from databuild_dagster import BuildContext, databuild_asset
from databuild_dagster.bindings.registry.instance import warehouse_of
from databuild_dagster.data.lost_run_output import WarehouseRemains
from databuild_dagster.engine.holders import this_process
from databuild_dagster.model.commands import CancelJobRuns, ClaimRefs
from databuild_dagster.model.events import BufferedRun
from databuild_dagster.model.refs import derive_partition_uuid
from databuild_dagster.model.states import InstanceState, JobRunState
from databuild_dagster.warehouse.layout import Warehouse
from databuild_dagster.warehouse.manifest import ManifestState
from tests.support.dead_process import dead_process
from tests.support.instances import write_instance

DAYS = ["2013-01-01", "2013-01-02"]
REFS = [f"numbers@{day}" for day in DAYS]


@databuild_asset(partitions_def=dg.DailyPartitionsDefinition("2013-01-01", end_date="2014-01-01"), code_version="7")
def numbers(context: BuildContext) -> pd.DataFrame:
    return pd.DataFrame({"day": [context.partition_key]})


@pytest.fixture
def site(deploy: Any) -> Any:
    return deploy(numbers)


def claimed_by_a_dead_process(site: Any) -> list[str]:
    """Two days, each a job run that a process had begun; it is gone."""
    job_runs = [site.engine.new_id() for _ in DAYS]
    runs = tuple(BufferedRun(job_run, (ref,), day) for job_run, ref, day in zip(job_runs, REFS, DAYS, strict=True))
    site.engine.handle(
        ClaimRefs(
            launch_id=site.engine.new_id(),
            job="numbers",
            location="tests",
            dagster_run_id=site.engine.new_id(),
            holder=dead_process(),
            runs=runs,
            code_version="7",
        )
    )
    return job_runs


def written(site: Any, job_run: str, ref: str, state: ManifestState | None = None) -> Any:
    return write_instance(
        pd.DataFrame({"day": ["as the dead wrote it"]}),
        Warehouse(warehouse_of(site.instance)),
        ref=ref,
        uuid=derive_partition_uuid(job_run, ref),
        job_run=job_run,
        state=state,
    )


def test_what_was_finished_is_adopted_and_shown_and_the_rest_is_built_again(site: Any) -> None:
    finished, begun = claimed_by_a_dead_process(site)
    written(site, finished, REFS[0])

    site.build(most_ticks=30)
    site.build(*REFS)

    assert [site.state(ref) for ref in REFS] == [InstanceState.LIVE, InstanceState.LIVE]
    assert site.rows(REFS[0]) == [{"day": "as the dead wrote it"}]
    assert site.rows(REFS[1]) == [{"day": DAYS[1]}]
    states = {run.id: run.state for run in site.engine.queries.job_runs()}
    assert (states[finished], states[begun]) == (JobRunState.SUCCEEDED, JobRunState.LOST)
    assert len(site.engine.queries.history(REFS[0])) == 1, "it was built once"
    assert site.engine.queries.canonical([REFS[0]])[REFS[0]].code_version == "7"
    assert site.materialized("numbers") == DAYS


def test_what_a_gate_has_stopped_is_not_adopted(site: Any) -> None:
    finished, _ = claimed_by_a_dead_process(site)
    written(site, finished, REFS[0], ManifestState.PARTIAL)

    site.build()

    assert {run.id: run.state for run in site.engine.queries.job_runs()}[finished] is JobRunState.LOST


def test_what_has_lost_a_file_is_not_adopted(site: Any) -> None:
    finished, _ = claimed_by_a_dead_process(site)
    manifest = written(site, finished, REFS[0])
    warehouse = Warehouse(warehouse_of(site.instance))
    folder = warehouse.instance_dir("numbers", manifest.instance_uuid)
    Path(folder, manifest.files[0].uri).unlink()

    site.build()

    assert {run.id: run.state for run in site.engine.queries.job_runs()}[finished] is JobRunState.LOST


def test_of_what_a_dead_process_had_begun_nothing_is_left_once_it_is_lost(site: Any) -> None:
    finished, begun = claimed_by_a_dead_process(site)
    warehouse = Warehouse(warehouse_of(site.instance))
    written(site, finished, REFS[0])
    half = Path(warehouse.instance_dir("numbers", derive_partition_uuid(begun, REFS[1])))
    half.mkdir(parents=True)
    (half / "part-0.parquet").write_bytes(b"half of it")
    staged = [Path(warehouse.new_staging_dir(job_run)) for job_run in (finished, begun)]
    for folder in staged:
        folder.mkdir()
        (folder / "part-0.parquet").write_bytes(b"half of it")

    site.build(most_ticks=30)

    assert not half.exists()
    assert not any(folder.exists() for folder in staged)
    assert site.state(REFS[0]) is InstanceState.LIVE
    assert site.rows(REFS[0]) == [{"day": "as the dead wrote it"}], "what was adopted is no remains"


def test_a_clean_up_that_was_itself_killed_is_gone_on_with(site: Any) -> None:
    """The staging folder goes last, so that the next tick knows of it."""
    _, begun = claimed_by_a_dead_process(site)
    site.build()
    warehouse = Warehouse(warehouse_of(site.instance))
    half = Path(warehouse.instance_dir("numbers", derive_partition_uuid(begun, REFS[1])))
    half.mkdir(parents=True)
    staged = Path(warehouse.new_staging_dir(begun))
    staged.mkdir()

    site.build()

    assert not half.exists()
    assert not staged.exists()


def test_what_a_live_process_is_writing_is_left_alone(site: Any) -> None:
    job_run = site.engine.new_id()
    claim = ClaimRefs(
        launch_id=site.engine.new_id(),
        job="numbers",
        location="tests",
        dagster_run_id=site.engine.new_id(),
        holder=this_process(),
        runs=(BufferedRun(job_run, (REFS[0],), DAYS[0]),),
        code_version="7",
    )
    site.engine.handle(claim)
    site.engine.handle(CancelJobRuns(job_run_ids=(job_run,), reason="no more"))
    warehouse = Warehouse(warehouse_of(site.instance))
    staged, others = (Path(warehouse.new_staging_dir(name)) for name in (job_run, site.engine.new_id()))
    for folder in (staged, others):
        folder.mkdir()

    assert WarehouseRemains(site.engine, warehouse.root).clear() == []

    assert staged.exists(), "it may not have heard of its end yet"
    assert others.exists(), "of another home, which has the same cache"
