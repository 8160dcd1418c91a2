"""Dagster runs whose process died, or whose events Dagster could not store, get the events that they did not report.

A step writes to our log first and to Dagster then. A process that is killed between the two leaves a live instance that
Dagster does not show, and so does a step that finds Dagster's database locked. A process that is killed after both leaves,
unless a daemon monitors it, an open Dagster run.
"""

from collections.abc import Iterable
from datetime import UTC, datetime

from dagster import AssetRecordsFilter, DagsterEventType, DagsterInstance, DagsterRun, DagsterRunStatus, RunsFilter

from databuild_dagster.bindings.adapter import run_tags
from databuild_dagster.bindings.adapter.keys import asset_key
from databuild_dagster.bindings.display.materialization import LiveRef, report_live
from databuild_dagster.bindings.registry.instance import engine_for
from databuild_dagster.bindings.registry.registration import dagster_partition
from databuild_dagster.engine.engine import Engine
from databuild_dagster.engine.holders import surely_gone
from databuild_dagster.model.coordination import Answer
from databuild_dagster.model.refs import Ref, asset_of, partition_key_of

#: How far back the first look of a process goes.
LOOK_BACK_SECONDS = 3600.0
#: Dagster records a run's end a moment before other processes see it.
OVERLAP_SECONDS = 30.0
#: Runs read at a time, the newest first; more exist only when something else is wrong.
MAX_RUNS = 500
_LAST_LOOK = "last look at dead runs"


def report_dead_runs(instance: DagsterInstance, lost: Iterable[str] = ()) -> list[Ref]:
    """Materialize the unreported instances of dead Dagster runs, and end open dead runs; returns the reported refs.

    `lost` are launches found dead just now. Without any dead run this takes two queries.
    """
    engine = engine_for(instance)
    dead = [*_open_without_process(instance, engine), *_failed_lately(instance, engine)]
    built: dict[Ref, str] = {}
    for run in dead:
        built.update(_built_by(engine, run))
    for launch_id in lost:
        built.update(_built_in(engine, launch_id))
    return _materialize(instance, engine, built)


def _open_without_process(instance: DagsterInstance, engine: Engine) -> list[DagsterRun]:
    """Open runs of launches whose job runs have all ended and whose process is gone; each is reported as failed."""
    ended = []
    for run in instance.get_runs(filters=RunsFilter(statuses=[DagsterRunStatus.STARTED, DagsterRunStatus.CANCELING])):
        process = run.tags.get(run_tags.WORKER_TAG) or run.tags.get(run_tags.PROCESS_TAG)
        launch_id = run.tags.get(run_tags.LAUNCH_TAG)
        if launch_id is None or process is None or not surely_gone(process):
            continue
        runs = engine.queries.job_runs.of_launch(launch_id)
        if not runs or any(job_run.ended_at is None for job_run in runs):
            # The tick ends it when it finds the launch lost.
            continue
        # It may have ended in this moment; read again, now that its process cannot end it.
        now = instance.get_run_by_id(run.run_id)
        if now is not None and not now.is_finished:
            instance.report_run_failed(
                now, "databuild: the process of this run is gone; the partitions that it built are live."
            )
        ended.append(run)
    return ended


def _failed_lately(instance: DagsterInstance, engine: Engine) -> list[DagsterRun]:
    """Failed runs, since the last look of this process, that may have ended before they reported everything."""
    now = engine.clock()
    since = engine.memory.of(_LAST_LOOK, lambda: now - LOOK_BACK_SECONDS) - OVERLAP_SECONDS
    failed = RunsFilter(statuses=[DagsterRunStatus.FAILURE], updated_after=datetime.fromtimestamp(since, UTC))
    runs = [
        run
        for run in instance.get_runs(filters=failed, limit=MAX_RUNS)
        if not {run_tags.TAINT_TAG, run_tags.STOPPED_TAG} & run.tags.keys() and run.tags.get(run_tags.PLAIN_TAG) is None
    ]
    engine.memory.put(_LAST_LOOK, now)
    return [run for run in runs if not _failed_itself(instance, run)]


def _failed_itself(instance: DagsterInstance, run: DagsterRun) -> bool:
    """Whether the step raised its own `Failure`, which it does at its end.

    Without a failed step the process died. Any other error of our step is of Dagster's database.
    """
    failed = instance.all_logs(run.run_id, of_type=DagsterEventType.STEP_FAILURE)
    events = [entry.dagster_event for entry in failed if entry.dagster_event is not None]
    return bool(events) and all(event.step_failure_data.user_failure_data is not None for event in events)


def _built_by(engine: Engine, run: DagsterRun) -> dict[Ref, str]:
    """Ref to the job run of this Dagster run for it."""
    if (launch_id := run.tags.get(run_tags.LAUNCH_TAG)) is not None:
        return _built_in(engine, launch_id)
    entries = engine.ledger.of_requester(run.run_id)
    return {entry.ref: entry.job_run for entry in entries if entry.kind is Answer.BUILD and entry.job_run is not None}


def _built_in(engine: Engine, launch_id: str) -> dict[Ref, str]:
    return {ref: run.id for run in engine.queries.job_runs.of_launch(launch_id) for ref in run.refs}


def _materialize(instance: DagsterInstance, engine: Engine, built: dict[Ref, str]) -> list[Ref]:
    live: list[LiveRef] = []
    datasets = {dataset.asset: dataset for dataset in engine.queries.datasets.all().values()} if built else {}
    for ref, canonical in engine.queries.canonical.of(list(built)).items() if built else ():
        dataset = datasets.get(asset_of(ref))
        # A later builder reports its own instance.
        if canonical.uuid is None or canonical.live_at is None or canonical.job_run != built[ref] or dataset is None:
            continue
        partition = dagster_partition(dataset.partitions, partition_key_of(ref))
        if is_reported(instance, ref, partition, canonical.uuid):
            continue
        why = "Built by a Dagster run whose process died before it reported it."
        live.append(LiveRef(ref, canonical.uuid, canonical.rows or 0, why))
    report_live(instance, datasets.values(), live)
    return [one.ref for one in live]


def is_reported(instance: DagsterInstance, ref: Ref, partition: str | None, uuid: str) -> bool:
    """Whether the last materialization of a ref in Dagster is that of an instance."""
    of_ref = AssetRecordsFilter(
        asset_key=asset_key(asset_of(ref)), asset_partitions=None if partition is None else [partition]
    )
    records = instance.fetch_materializations(of_ref, limit=1).records
    last = records[0].asset_materialization if records else None
    return last is not None and uuid in (last.tags or {}).values()
