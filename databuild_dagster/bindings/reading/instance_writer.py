"""Stages the frames of a step: how many files they become, and which columns an EMPTY result has, follows from the log."""

import os
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any

from dagster import DagsterInstance

from databuild_dagster.bindings.registry.instance import engine_for
from databuild_dagster.data.read_plan import neighbour
from databuild_dagster.model.refs import PARTITION_KEY, Ref, asset_of
from databuild_dagster.spark.memory_frames import column_names, has_no_rows
from databuild_dagster.spark.reach import Reach, in_place
from databuild_dagster.spark.schemas import Columns
from databuild_dagster.spark.staging import Staged, files_wanted, is_large, stage_batch, stage_instance
from databuild_dagster.warehouse.errors import DiskTrouble, ManifestMissing, StorageTrouble
from databuild_dagster.warehouse.layout import Warehouse
from databuild_dagster.warehouse.manifest import Manifest, TableSchema, kept_manifests

#: The schema of an asset that has returned only EMPTY so far.
NO_COLUMNS = TableSchema((), spark='{"type":"struct","fields":[]}')


class InstanceWriter:
    """Writes for the job runs of one step. Thread-safe."""

    def __init__(self, warehouse: Warehouse, instance: DagsterInstance) -> None:
        self._warehouse = warehouse
        self._instance = instance

    def stage(self, frame: Any, folder: str, ref: Ref, inputs: Mapping[Ref, str]) -> Staged:
        """Write the frame of one ref; None is EMPTY. Raises errors of writing."""
        if _is_nothing(frame):
            return self._nothing(asset_of(ref), folder)
        reach = self._reach_of(frame)
        coalesce = files_wanted(self._input_manifests(inputs))
        with self._place(asset_of(ref), folder, reach) as place:
            return stage_instance(frame, place, ref=ref, coalesce=coalesce, reach=reach)

    def stage_batch(
        self, frame: Any, folder: str, asset: str, keys: Collection[str], inputs: Mapping[str, Mapping[Ref, str]]
    ) -> dict[str, Staged]:
        """Write the frame of a batch of partition keys at once; `inputs` is by key."""
        if _is_nothing(frame) or (column_names(frame) == [PARTITION_KEY] and has_no_rows(frame)):
            return dict.fromkeys(keys, self._nothing(asset, folder))
        everything = self._input_manifests({ref: uuid for found in inputs.values() for ref, uuid in found.items()})
        of_uuid = {manifest.instance_uuid: manifest for manifest in everything}
        by_key = {key: [of_uuid[uuid] for uuid in found.values() if uuid in of_uuid] for key, found in inputs.items()}
        reach = self._reach_of(frame)
        with self._place(asset, folder, reach) as place:
            return stage_batch(frame, place, asset=asset, keys=keys, is_large=is_large(by_key.values()), reach=reach)

    def _reach_of(self, frame: Any) -> Reach | None:
        """How the frame's Spark writes into the warehouse itself; None where it writes on a disk, or is no Spark."""
        session = getattr(frame, "sparkSession", None)
        return None if session is None else in_place(session, self._warehouse)

    @contextmanager
    def _place(self, asset: str, folder: str, reach: Reach | None) -> Iterator[str]:
        """The staging folder, or an attempt's, which carries the name of the call's staging folder.

        An attempt that fails is removed. Spark may still be writing there; `databuild gc --leftovers` removes such files.
        """
        if reach is None:
            yield folder
            return
        place = self._warehouse.new_attempt_dir(asset, os.path.basename(os.path.dirname(folder)))
        try:
            yield place
        except BaseException:
            with suppress(DiskTrouble, StorageTrouble):
                self._warehouse.storage.remove_tree(place)
            raise

    def columns_of(self, asset: str) -> Columns | None:
        """The columns of the newest live instance of an asset, None if there is none."""
        newest = neighbour(engine_for(self._instance).queries, asset)
        return None if newest is None else Columns(newest.ref, newest.schema)

    def _nothing(self, asset: str, folder: str) -> Staged:
        newest = neighbour(engine_for(self._instance).queries, asset)
        return Staged(folder, (), newest.schema if newest else NO_COLUMNS)

    def _input_manifests(self, inputs: Mapping[Ref, str]) -> list[Manifest]:
        """The manifests of inputs, none if one is missing: a plain asset has no manifest."""
        by_asset: dict[str, list[str]] = {}
        for ref, uuid in inputs.items():
            by_asset.setdefault(asset_of(ref), []).append(uuid)
        try:
            return [m for asset, uuids in by_asset.items() for m in kept_manifests(self._warehouse, asset, uuids)]
        except ManifestMissing:
            return []


def _is_nothing(frame: Any) -> bool:
    """True also for a frame without columns, which has only EMPTY inputs: Parquet cannot store it."""
    return frame is None or not column_names(frame)
