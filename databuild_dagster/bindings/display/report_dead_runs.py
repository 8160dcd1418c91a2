"""From Dagster runs whose process died to what Dagster should have heard of them.

A step tells our log first and Dagster then. What is killed between the two has built something that is live, and that
Dagster does not show; what is killed after both leaves, where nobody watched over it, a Dagster run that goes on for ever.
"""

from collections.abc import Iterable
from datetime import UTC, datetime

from dagster import (
    AssetMaterialization,
    AssetRecordsFilter,
    DagsterInstance,
    DagsterRun,
    DagsterRunStatus,
    RunsFilter,
)

from databuild_dagster.bindings.adapter.asset_keys import asset_key
from databuild_dagster.bindings.adapter.run_tags import LAUNCH_TAG, PROCESS_TAG, TAINT_TAG, WORKER_TAG
from databuild_dagster.bindings.display.materialization import version_tags
from databuild_dagster.bindings.registry.instance import engine_for
from databuild_dagster.bindings.registry.registration import dagster_partition
from databuild_dagster.engine.engine import Engine
from databuild_dagster.engine.holders import surely_gone
from databuild_dagster.model.coordination import Answer
from databuild_dagster.model.refs import asset_of, partition_key_of

#: How far back a process looks that looks for the first time.
LOOK_BACK_SECONDS = 3600.0
#: Dagster notes the time of a run's end a moment before others see it.
OVERLAP_SECONDS = 30.0
#: Runs of one look, the newest first: there are more only where something else is wrong.
MAX_RUNS = 500
_LAST_LOOK = "last look at dead runs"


def tell_what_was_cut_short(instance: DagsterInstance, lost: Iterable[str] = ()) -> list[str]:
    """Materialize what dead Dagster runs have built and not told, and end those that nobody else ends; the refs told of.

    `lost` are launches found dead just now. Without any dead run it is two queries.
    """
    engine = engine_for(instance)
    cut_short = [*_gone_on_for_ever(instance, engine), *_failed_lately(instance, engine)]
    built: dict[str, str] = {}
    for run in cut_short:
        built.update(_built_by(engine, run))
    for launch_id in lost:
        built.update(_built_in(engine, launch_id))
    return _materialize(instance, engine, built)


def _gone_on_for_ever(instance: DagsterInstance, engine: Engine) -> list[DagsterRun]:
    """Launches all of whose job runs have ended, and whose process is gone; Dagster is told that they have failed."""
    ended = []
    for run in instance.get_runs(filters=RunsFilter(statuses=[DagsterRunStatus.STARTED, DagsterRunStatus.CANCELING])):
        process = run.tags.get(WORKER_TAG) or run.tags.get(PROCESS_TAG)
        if LAUNCH_TAG not in run.tags or process is None or not surely_gone(process):
            continue
        runs = engine.queries.job_runs_of_launch(run.tags[LAUNCH_TAG])
        if not runs or any(each.ended_at is None for each in runs):
            # The tick that finds it lost ends it.
            continue
        # It may have ended in this very moment: asked again, now that its process cannot end it any more.
        now = instance.get_run_by_id(run.run_id)
        if now is not None and not now.is_finished:
            instance.report_run_failed(now, "databuild: its process is gone; what it had built before is live.")
        ended.append(run)
    return ended


def _failed_lately(instance: DagsterInstance, engine: Engine) -> list[DagsterRun]:
    """Those whose process was seen to be dead since the last look of this process; a step that fails says so itself."""
    now = engine.clock()
    since = engine.memory.of(_LAST_LOOK, lambda: now - LOOK_BACK_SECONDS) - OVERLAP_SECONDS
    failed = RunsFilter(statuses=[DagsterRunStatus.FAILURE], updated_after=datetime.fromtimestamp(since, UTC))
    runs = [run for run in instance.get_runs(filters=failed, limit=MAX_RUNS) if TAINT_TAG not in run.tags]
    engine.memory.put(_LAST_LOOK, now)
    return [run for run in runs if not _has_failed_by_itself(instance, run)]


def _has_failed_by_itself(instance: DagsterInstance, run: DagsterRun) -> bool:
    stats = instance.get_run_stats(run.run_id)
    return bool(getattr(stats, "steps_failed", 0))


def _built_by(engine: Engine, run: DagsterRun) -> dict[str, str]:
    """Ref to the job run of this Dagster run that was to build it."""
    if (launch_id := run.tags.get(LAUNCH_TAG)) is not None:
        return _built_in(engine, launch_id)
    entries = engine.ledger.of_requester(run.run_id)
    return {each.ref: each.job_run for each in entries if each.kind is Answer.BUILD and each.job_run is not None}


def _built_in(engine: Engine, launch_id: str) -> dict[str, str]:
    return {ref: run.id for run in engine.queries.job_runs_of_launch(launch_id) for ref in run.refs}


def _materialize(instance: DagsterInstance, engine: Engine, built: dict[str, str]) -> list[str]:
    told: list[str] = []
    if not built:
        return told
    for ref, canonical in engine.queries.canonical(list(built)).items():
        dataset = engine.queries.dataset(asset_of(ref))
        # Of what another has built since, that other one tells.
        if canonical.uuid is None or canonical.live_at is None or canonical.job_run != built[ref] or dataset is None:
            continue
        partition = dagster_partition(dataset.partitions, partition_key_of(ref))
        if _is_told(instance, ref, partition, canonical.uuid):
            continue
        instance.report_runless_asset_event(
            AssetMaterialization(
                asset_key=asset_key(asset_of(ref)),
                partition=partition,
                description="Built by a Dagster run whose process died before it could say so.",
                metadata={"databuild/instance": canonical.uuid, "dagster/row_count": canonical.rows or 0},
                tags=version_tags(canonical.uuid, partition),
            )
        )
        told.append(ref)
    return told


def _is_told(instance: DagsterInstance, ref: str, partition: str | None, uuid: str) -> bool:
    of_ref = AssetRecordsFilter(
        asset_key=asset_key(asset_of(ref)), asset_partitions=None if partition is None else [partition]
    )
    records = instance.fetch_materializations(of_ref, limit=1).records
    last = records[0].asset_materialization if records else None
    return last is not None and uuid in (last.tags or {}).values()
