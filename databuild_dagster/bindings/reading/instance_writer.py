"""Writes the instances of a step: staged frames get a place and a manifest, or are discarded."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any

from dagster import DagsterInstance

from databuild_dagster.bindings.reading.spark_use import SparkUse
from databuild_dagster.bindings.registry.instance import engine_for
from databuild_dagster.data.lost_run_output import attempts_before, remove_attempts_before
from databuild_dagster.data.read_plan import neighbour
from databuild_dagster.model.refs import Ref, asset_of, derive_partition_uuid
from databuild_dagster.spark.schemas import Columns
from databuild_dagster.spark.staging import (
    PARTITION_KEY,
    Staged,
    files_wanted,
    is_large,
    publish,
    read_staged,
    stage_batch,
    stage_instance,
    staging,
)
from databuild_dagster.store.queries.queries import Queries
from databuild_dagster.warehouse import disk
from databuild_dagster.warehouse.errors import ManifestMissing
from databuild_dagster.warehouse.layout import Warehouse
from databuild_dagster.warehouse.manifest import Manifest, ManifestState, TableSchema, read_manifests

#: The schema of an asset that has returned only EMPTY so far.
NO_COLUMNS = TableSchema((), spark='{"type":"struct","fields":[]}')


class InstanceWriter:
    """Writes for the job runs of one step. Thread-safe."""

    def __init__(self, warehouse: Warehouse, instance: DagsterInstance, spark: SparkUse) -> None:
        self._warehouse = warehouse
        self._instance = instance
        self._spark = spark

    def staging(self, name: str) -> AbstractContextManager[str]:
        """A folder for one call of a function."""
        return staging(self._warehouse, name)

    def stage(self, frame: Any, folder: str, ref: Ref, inputs: Mapping[Ref, str]) -> Staged:
        """Write the frame of one ref; None is EMPTY. Raises errors of writing."""
        if _is_nothing(frame):
            return self._nothing(asset_of(ref), folder)
        return stage_instance(frame, folder, ref=ref, coalesce=files_wanted(self._input_manifests(inputs)))

    def stage_batch(
        self, frame: Any, folder: str, asset: str, keys: Collection[str], inputs: Mapping[str, Mapping[Ref, str]]
    ) -> dict[str, Staged]:
        """Write the frame of a batch of partition keys at once; `inputs` is by key."""
        if _is_nothing(frame) or (list(frame.columns) == [PARTITION_KEY] and _has_no_rows(frame)):
            return dict.fromkeys(keys, self._nothing(asset, folder))
        everything = self._input_manifests({ref: uuid for found in inputs.values() for ref, uuid in found.items()})
        of_uuid = {manifest.instance_uuid: manifest for manifest in everything}
        by_key = {key: [of_uuid[uuid] for uuid in found.values() if uuid in of_uuid] for key, found in inputs.items()}
        return stage_batch(frame, folder, asset=asset, keys=keys, is_large=is_large(by_key.values()))

    def staged(self, staged: Mapping[str | None, Staged], *, pandas: bool, by_key: bool) -> Any:
        """The staged rows as one frame, with the column of the partition key if `by_key`."""
        return read_staged(None if pandas else self._spark.session, staged, by_key=by_key)

    def publish(
        self,
        staged: Staged,
        job_run_id: str,
        ref: Ref,
        inputs: Mapping[Ref, str],
        *,
        state: ManifestState | None = None,
        comment: str = "",
        children: Sequence[str] = (),
        lot_id: str | None = None,
    ) -> tuple[Manifest, str]:
        """Move staged files to their place and write a manifest over them or over `children`. Returns the manifest and its
        uri. Raises errors of writing."""
        uuid = derive_partition_uuid(job_run_id, ref)
        manifest = publish(
            staged,
            self._warehouse,
            ref=ref,
            uuid=uuid,
            job_run=job_run_id,
            inputs=inputs,
            state=state,
            comment=comment,
            children=children,
            lot_id=lot_id,
        )
        return manifest, self._warehouse.manifest_path(asset_of(ref), uuid)

    def discard(self, job_run_id: str, ref: Ref) -> None:
        """Remove the files that the job run has written for a ref."""
        self._warehouse.remove_instance(asset_of(ref), derive_partition_uuid(job_run_id, ref))

    def attempts_before(self, job_run_id: str, ref: Ref) -> list[str]:
        """The instances of failed attempts since the ref was last live, newest first."""
        return attempts_before(self._queries(), ref, derive_partition_uuid(job_run_id, ref))

    def remove_attempts_before(self, job_run_id: str, ref: Ref) -> None:
        """Remove the parts that these attempts kept. Raises errors of removing."""
        uuid = derive_partition_uuid(job_run_id, ref)
        remove_attempts_before(self._queries(), self._warehouse, ref, uuid)

    def lasting_folder(self, job_run_id: str) -> str:
        """A new staging folder of the job run, which stays empty. Without its process, it shows that the job run left
        files to clean up (`data.lost_run_output`)."""
        folder = self._warehouse.new_staging_dir(job_run_id)
        disk.make_dirs(folder)
        return folder

    def columns_of(self, asset: str) -> Columns | None:
        """The columns of the newest live instance of an asset, None if there is none."""
        newest = neighbour(self._queries(), asset)
        return None if newest is None else Columns(newest.ref, newest.schema)

    def attempts(self, refs: Iterable[Ref]) -> dict[Ref, int]:
        """The number of attempts at each ref since it was last live or tainted (rule 6.8)."""
        return self._queries().attempts(refs)

    def _queries(self) -> Queries:
        return engine_for(self._instance).queries

    def _nothing(self, asset: str, folder: str) -> Staged:
        newest = neighbour(self._queries(), asset)
        return Staged(folder, (), newest.schema if newest else NO_COLUMNS)

    def _input_manifests(self, inputs: Mapping[Ref, str]) -> list[Manifest]:
        """The manifests of inputs, none if one is missing: a plain asset has no manifest."""
        by_asset: dict[str, list[str]] = {}
        for ref, uuid in inputs.items():
            by_asset.setdefault(asset_of(ref), []).append(uuid)
        try:
            return [m for asset, uuids in by_asset.items() for m in read_manifests(self._warehouse, asset, uuids)]
        except ManifestMissing:
            return []


def _is_nothing(frame: Any) -> bool:
    """True also for a frame without columns, which has only EMPTY inputs: Parquet cannot store it."""
    return frame is None or len(frame.columns) == 0


def _has_no_rows(frame: Any) -> bool:
    return bool(frame.isEmpty() if hasattr(frame, "isEmpty") else frame.empty)
