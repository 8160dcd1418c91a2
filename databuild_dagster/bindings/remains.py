"""What a lost launch has left behind: job runs that had finished but could not say so are adopted, not built again (SPEC 6.9).

A complete manifest is the last thing that a build writes, and it says everything that its success would have said.
"""

from collections.abc import Iterable, Sequence

from dagster import AssetMaterialization, AssetRecordsFilter, DagsterInstance

from databuild_dagster.bindings.describing import version_tags
from databuild_dagster.bindings.instance import engine_for
from databuild_dagster.bindings.keys import asset_key
from databuild_dagster.bindings.registration import dagster_partition
from databuild_dagster.engine import Engine
from databuild_dagster.model.events import ManifestFact, OutputFact, RunSuccess
from databuild_dagster.model.refs import asset_of, derive_partition_uuid, partition_key_of
from databuild_dagster.store.queries import JobRunView
from databuild_dagster.warehouse import (
    ManifestMissing,
    ManifestState,
    StorageTrouble,
    Warehouse,
    missing_files,
    read_manifest,
)


class WarehouseRemains:
    """The engine's `Remains` over one warehouse."""

    def __init__(self, engine: Engine, warehouse: str) -> None:
        self._engine = engine
        self._warehouse = Warehouse(warehouse)

    def finished(self, job_runs: Sequence[JobRunView]) -> list[RunSuccess]:
        """The success of each job run all of whose outputs lie there complete."""
        found = []
        for run in job_runs:
            outputs = [self._output(run.id, ref) for ref in run.refs]
            if outputs and all(output is not None for output in outputs):
                found.append(RunSuccess(run.id, tuple(output for output in outputs if output is not None)))
        return found

    def _output(self, job_run_id: str, ref: str) -> OutputFact | None:
        asset, uuid = asset_of(ref), derive_partition_uuid(job_run_id, ref)
        try:
            manifest = read_manifest(self._warehouse, asset, uuid)
            if manifest.state not in (ManifestState.COMPLETE, ManifestState.EMPTY):
                return None
            if missing_files(self._warehouse, manifest):
                return None
        except (ManifestMissing, StorageTrouble):
            return None
        return OutputFact(
            ref=ref,
            inputs=manifest.inputs,
            code_version=self._engine.queries.canonical([ref])[ref].code_version,
            manifest=ManifestFact(
                state=manifest.state.value,
                uri=self._warehouse.manifest_path(asset, uuid),
                files=len(manifest.files),
                rows=manifest.rows,
                bytes=manifest.bytes,
            ),
        )


def materialize_unsaid(instance: DagsterInstance, launch_ids: Iterable[str]) -> None:
    """Dagster hears of what lost launches have built, where their end came between our log and Dagster's."""
    engine = engine_for(instance)
    refs = [ref for launch in launch_ids for run in engine.queries.job_runs_of_launch(launch) for ref in run.refs]
    for ref, canonical in engine.queries.canonical(refs).items():
        dataset = engine.queries.dataset(asset_of(ref))
        if canonical.uuid is None or canonical.live_at is None or dataset is None:
            continue
        partition = dagster_partition(dataset.partitions, partition_key_of(ref))
        if _is_told(instance, ref, partition, canonical.uuid):
            continue
        instance.report_runless_asset_event(
            AssetMaterialization(
                asset_key=asset_key(asset_of(ref)),
                partition=partition,
                description="Built by a launch that was lost before it could say so.",
                metadata={"databuild/instance": canonical.uuid, "dagster/row_count": canonical.rows or 0},
                tags=version_tags(canonical.uuid, partition),
            )
        )


def _is_told(instance: DagsterInstance, ref: str, partition: str | None, uuid: str) -> bool:
    of_ref = AssetRecordsFilter(
        asset_key=asset_key(asset_of(ref)), asset_partitions=None if partition is None else [partition]
    )
    records = instance.fetch_materializations(of_ref, limit=1).records
    last = records[0].asset_materialization if records else None
    return last is not None and uuid in (last.tags or {}).values()
