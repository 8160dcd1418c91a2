"""Frames in and out for one step: instances through Spark or pandas, plain assets through Dagster's own
loading.

May be called from many threads. The session is opened by whoever first needs it, so an asset of pandas alone
starts no Spark.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from datetime import UTC, datetime
from threading import Lock
from typing import Any

import msgspec
from dagster import DagsterInstance

from databuild_dagster.bindings.dagster_private import AssetGraph, AssetValueLoader
from databuild_dagster.bindings.instance import engine_for
from databuild_dagster.bindings.keys import asset_key
from databuild_dagster.bindings.parameters import ParameterKind, kind_of
from databuild_dagster.model.refs import asset_of, derive_partition_uuid, partition_key_of
from databuild_dagster.model.states import InstanceState
from databuild_dagster.spark import (
    explain_failure,
    files_wanted,
    interrupt,
    is_transient,
    read_instances,
    read_pandas,
    tag_operations,
    write_instance,
)
from databuild_dagster.store.queries import Canonical
from databuild_dagster.warehouse import (
    Manifest,
    ManifestMissing,
    ManifestState,
    TableSchema,
    Warehouse,
    disk,
    read_manifest,
    write_manifest,
)


class CannotLoad(Exception):
    """A plain asset's value is not what the parameter is annotated with; the message says both."""


@dataclass(frozen=True, slots=True)
class WrittenInstance:
    """What was written, in the words of its manifest."""

    asset: str
    uuid: str
    state: str
    uri: str
    files: int
    rows: int
    bytes: int


class Frames:
    """Reads and writes for the job runs of one step."""

    def __init__(
        self,
        *,
        spark_resource: Any,
        warehouse: str,
        instance: DagsterInstance,
        graph: AssetGraph | None = None,
    ) -> None:
        self.spark_resource = spark_resource
        self._warehouse = Warehouse(warehouse)
        self._instance = instance
        self._graph = graph
        self._session: Any = None
        self._lock = Lock()
        #: Dagster's loading keeps its resources in one place and is not made for threads.
        self._foreign_lock = Lock()

    @property
    def session(self) -> Any:
        """The Spark session. Raises what opening it raises."""
        with self._lock:
            if self._session is None:
                self._session = self.spark_resource.spark_session
            return self._session

    @contextmanager
    def interruptible(self, tag: str, *, uses_spark: bool) -> Iterator[None]:
        """What this thread runs in Spark inside the block can be stopped by its tag."""
        with tag_operations(self.session, tag) if uses_spark else nullcontext():
            yield

    def interrupt(self, tag: str) -> None:
        """Stop what runs with the tag, from any thread."""
        if self._session is not None:
            interrupt(self._session, tag)

    # In

    def read(self, canonical: Sequence[Canonical], asset: str, *, pandas: bool) -> Any:
        """One frame of instances of one asset."""
        manifests = [read_manifest(self._warehouse, asset, each.uuid) for each in canonical if each.uuid is not None]
        if any(manifest.schema.columns for manifest in manifests):
            # Where EMPTY was returned before any neighbour had columns, the others' columns are its own too.
            manifests = [manifest for manifest in manifests if manifest.schema.columns]
        elif (neighbour := self._neighbour(asset)) is not None:
            # No partition at all, as for yesterday on the first day, or nothing but EMPTY: no rows, but
            # columns.
            manifests = [msgspec.structs.replace(neighbour, files=())]
        else:
            return _no_pandas() if pandas else self.session.createDataFrame([], "struct<>")
        if pandas:
            return read_pandas(self._warehouse, manifests)
        return read_instances(self.session, self._warehouse, manifests)

    def load_foreign(self, asset: str, refs: Sequence[str], annotation: type, *, pandas: bool) -> Any:
        """A plain asset's partitions, loaded as Dagster loads them and united. Raises `CannotLoad`."""
        assert self._graph is not None, "only a step loads plain assets"
        key = asset_key(asset)
        loaders = {each: self._graph.get(each).assets_def for each in self._graph.get_all_asset_keys()}
        with self._foreign_lock, AssetValueLoader(loaders, instance=self._instance) as loader:
            values = [
                loader.load_asset_value(key, python_type=annotation, partition_key=partition_key_of(ref))
                for ref in refs
            ]
        frames = [self._as_frame(value, ref, pandas=pandas) for value, ref in zip(values, refs, strict=True)]
        if not frames:
            return _no_pandas() if pandas else self.session.createDataFrame([], "struct<>")
        return _united(frames, pandas=pandas)

    def _as_frame(self, value: Any, ref: str, *, pandas: bool) -> Any:
        kind = kind_of(type(value))
        if pandas:
            if kind is ParameterKind.PANDAS_FRAME:
                return value
            if kind is ParameterKind.SPARK_FRAME:
                return value.toPandas()
        elif kind is ParameterKind.SPARK_FRAME:
            return value
        elif kind is ParameterKind.PANDAS_FRAME or type(value).__module__.startswith("pyarrow"):
            return self.session.createDataFrame(value)
        wanted = "a pandas" if pandas else "a Spark"
        raise CannotLoad(
            f"{ref} is a plain Dagster asset whose value is a {type(value).__qualname__}, "
            f"not {wanted} DataFrame; let it return a DataFrame, or name it in deps= and read it yourself."
        )

    # Out

    def write(self, job_run_id: str, ref: str, frame: Any, *, inputs: Mapping[str, str]) -> WrittenInstance:
        """Write what a job run returned, None for intentionally nothing. Raises what writing raises."""
        uuid = derive_partition_uuid(job_run_id, ref)
        if frame is None or len(frame.columns) == 0:
            # Parquet has no files without columns; such a frame is made of nothing but EMPTY inputs.
            manifest = self._write_nothing(job_run_id, ref, uuid, inputs)
        else:
            manifest = write_instance(
                frame,
                self._warehouse,
                ref=ref,
                uuid=uuid,
                job_run=job_run_id,
                inputs=dict(inputs),
                coalesce=self._files_wanted(inputs),
            )
        return WrittenInstance(
            asset=asset_of(ref),
            uuid=uuid,
            state=manifest.state.value,
            uri=self._warehouse.manifest_path(asset_of(ref), uuid),
            files=len(manifest.files),
            rows=manifest.rows,
            bytes=manifest.bytes,
        )

    def _files_wanted(self, inputs: Mapping[str, str]) -> int | None:
        """One file where little was read; what a plain asset has is not ours to measure."""
        try:
            return files_wanted([read_manifest(self._warehouse, asset_of(ref), uuid) for ref, uuid in inputs.items()])
        except ManifestMissing:
            return None

    def _write_nothing(self, job_run_id: str, ref: str, uuid: str, inputs: Mapping[str, str]) -> Manifest:
        neighbour = self._neighbour(asset_of(ref))
        manifest = Manifest(
            dataset=asset_of(ref),
            ref=ref,
            instance_uuid=uuid,
            job_run=job_run_id,
            attempt=1,
            state=ManifestState.EMPTY,
            created_at=datetime.now(UTC),
            schema=neighbour.schema if neighbour else TableSchema((), spark='{"type":"struct","fields":[]}'),
            inputs=dict(inputs),
            comment="EMPTY was returned",
        )
        write_manifest(self._warehouse, manifest)
        return manifest

    def _neighbour(self, asset: str) -> Manifest | None:
        """An instance of the asset that has columns; zero rows still have columns (SPEC 10.3)."""
        for canonical in engine_for(self._instance).queries.canonical_of_dataset(asset):
            if canonical.state is InstanceState.LIVE and canonical.manifest_uri and canonical.uuid:
                manifest = read_manifest(self._warehouse, asset, canonical.uuid)
                if manifest.schema.columns:
                    return manifest
        return None

    def discard(self, written: WrittenInstance) -> None:
        """Remove what the engine did not take."""
        disk.remove_tree(self._warehouse.instance_dir(written.asset, written.uuid))

    # Trouble

    def explain(self, error: BaseException) -> str:
        """One sentence."""
        return explain_failure(error)

    def is_transient(self, error: BaseException) -> bool:
        """Whether the same again may go well; a lost session is not used again."""
        transient = is_transient(error)
        if transient and (forget := getattr(self.spark_resource, "forget_session", None)) is not None:
            forget()
        return transient


def _united(frames: list[Any], *, pandas: bool) -> Any:
    if pandas:
        import pandas as pd

        return pd.concat(frames, ignore_index=True)
    united = frames[0]
    for frame in frames[1:]:
        united = united.unionByName(frame)
    return united


def _no_pandas() -> Any:
    import pandas as pd

    return pd.DataFrame()
