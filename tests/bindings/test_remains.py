"""What a process that died had finished is adopted; what it had not is built again (SPEC 6.9)."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import dagster as dg
import pandas as pd
import pytest

from databuild_dagster import BuildContext, databuild_asset
from databuild_dagster.bindings.instance import warehouse_of
from databuild_dagster.model.commands import ClaimRefs
from databuild_dagster.model.events import BufferedRun
from databuild_dagster.model.refs import derive_partition_uuid
from databuild_dagster.model.states import InstanceState, JobRunState
from databuild_dagster.spark import write_instance
from databuild_dagster.warehouse import ManifestState, Warehouse

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
    name = "from databuild_dagster.engine import this_process; print(this_process())"
    holder = subprocess.run([sys.executable, "-c", name], capture_output=True, text=True, check=True).stdout.strip()
    job_runs = [site.engine.new_id() for _ in DAYS]
    runs = tuple(BufferedRun(job_run, (ref,), day) for job_run, ref, day in zip(job_runs, REFS, DAYS, strict=True))
    site.engine.handle(
        ClaimRefs(
            launch_id=site.engine.new_id(),
            job="numbers",
            location="tests",
            dagster_run_id=site.engine.new_id(),
            holder=holder,
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
