"""Frames for one step: instances through Spark or in memory, plain assets through Dagster's loading. Thread-safe."""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from threading import Lock
from typing import Any, NamedTuple

import msgspec
from dagster import DagsterInstance

from databuild_dagster.bindings.adapter.dagster_private import AssetGraph, AssetValueLoader
from databuild_dagster.bindings.adapter.keys import asset_key
from databuild_dagster.bindings.reading.instance_writer import InstanceWriter
from databuild_dagster.bindings.reading.spark_use import SparkUse
from databuild_dagster.bindings.registry.instance import engine_for
from databuild_dagster.data.read_plan import manifests_in, neighbour
from databuild_dagster.model.logs import logger
from databuild_dagster.model.refs import PARTITION_KEY, Ref, partition_key_of
from databuild_dagster.spark.frames import filter_in, filtered, no_rows, read_arrow, read_instances, united
from databuild_dagster.spark.keyed import read_keyed, read_keyed_arrow, with_key
from databuild_dagster.spark.memory_frames import FrameKind, frame_kind, from_arrow, to_arrow
from databuild_dagster.spark.pyspark_names import arrow_of_frame, frame_of_arrow
from databuild_dagster.spark.reach import check_reach
from databuild_dagster.store.queries.canonical import Canonical
from databuild_dagster.warehouse.errors import DiskTrouble, StorageTrouble
from databuild_dagster.warehouse.file_index import FilesRead, narrowed
from databuild_dagster.warehouse.filters import Filter, matching_places, matching_rows, parsed_filter
from databuild_dagster.warehouse.layout import Warehouse
from databuild_dagster.warehouse.manifest import FileEntry, Manifest
from databuild_dagster.warehouse.whole_folders import WholeFolders, check_unchanged

_log = logger(__name__)

#: Receives, by instance, how many files of how many are read.
OnNarrowed = Callable[[Mapping[str, FilesRead]], None]


class How(NamedTuple):
    """How the instances of an input are read."""

    kind: FrameKind
    #: A condition that the rows meet.
    where: str | None = None
    #: Called with the number of files that the condition leaves.
    on_narrowed: OnNarrowed | None = None


class CannotLoad(Exception):
    """A plain asset's value has another type than the parameter's annotation; the message names both."""


class Frames:
    """Reads for the job runs of one step. `writer` writes for them, in the session of `spark`."""

    def __init__(
        self,
        *,
        spark_resource: Any,
        warehouse: str,
        instance: DagsterInstance,
        graph: AssetGraph | None = None,
        on_session: Callable[[Any], None] = lambda session: None,
    ) -> None:
        self.warehouse = Warehouse(warehouse)
        check = partial(check_reach, warehouse=self.warehouse)
        self.spark = SparkUse(spark_resource, on_session, check)
        self._instance = instance
        self._graph = graph
        self.writer = InstanceWriter(self.warehouse, instance)
        #: Folders that were read in place of listed files, by the folder of the frame that reads them.
        self._folders: list[tuple[str, WholeFolders]] = []
        self._folders_lock = Lock()
        #: Dagster's loading shares its resources and is not thread-safe.
        self._foreign_lock = Lock()

    def read(self, canonical: Sequence[Canonical], asset: str, how: How, files: Collection[str] | None = None) -> Any:
        """One frame of instances of one asset; `files`, named as by `file_sizes`, restricts it to some files.

        Raises `BadFilter`, and errors of reading.
        """
        wanted = self._filter(how)
        manifests = self._with_columns(asset, manifests_in(self.warehouse, asset, canonical))
        if files is not None:
            manifests = [_narrowed(manifest, files) for manifest in manifests]
        elif wanted is not None:
            manifests = self._needed(manifests, wanted, how.on_narrowed)
        if not manifests:
            return no_rows(how.kind, self._session)
        if how.kind is not FrameKind.SPARK:
            return from_arrow(read_arrow(self.warehouse, manifests, where=wanted), how.kind)
        frame = read_instances(self.spark.session, self.warehouse, manifests)
        return frame if wanted is None else filtered(frame, wanted)

    def read_by_key(self, by_key: Mapping[str, Sequence[Canonical]], asset: str, how: How, folder: str) -> Any:
        """One frame of instances of one asset, with the column of the output's partition key.

        It creates `folder`, which must stay until Spark has read the frame, within `unchanged_folders`. Everything else is as
        for `read`.
        """
        wanted = self._filter(how)
        distinct = {instance.uuid: instance for found in by_key.values() for instance in found}
        usable = self._with_columns(asset, manifests_in(self.warehouse, asset, list(distinct.values())))
        if not usable:
            return no_rows(how.kind, self._session, PARTITION_KEY)
        if wanted is not None:
            usable = self._needed(usable, wanted, how.on_narrowed)
        of_uuid = {manifest.instance_uuid: manifest for manifest in usable}
        keyed = {key: [of_uuid[one.uuid] for one in found if one.uuid in of_uuid] for key, found in by_key.items()}
        if not any(keyed.values()):
            keyed = dict.fromkeys(list(by_key)[:1], usable)
        if how.kind is not FrameKind.SPARK:
            return from_arrow(read_keyed_arrow(self.warehouse, keyed, where=wanted), how.kind)
        frame = read_keyed(
            self.spark.session,
            self.warehouse,
            keyed,
            folder,
            on_folders=partial(self._note_folders, folder),
        )
        return frame if wanted is None else filtered(frame, wanted)

    def _note_folders(self, folder: str, folders: WholeFolders) -> None:
        with self._folders_lock:
            self._folders.append((folder, folders))

    @contextmanager
    def unchanged_folders(self, folder: str) -> Iterator[None]:
        """Check, after the block, that the inputs of a call were the listed files alone (decision 0040).

        `folder` is the one of the call, above those of its frames. An error of the block may come from a file that came or
        went. Raises `FolderChanged`, `DiskTrouble`, `StorageTrouble`, and what the block raises.
        """
        try:
            yield
        except Exception:
            with suppress(DiskTrouble, StorageTrouble):
                check_unchanged(self._folders_below(folder))
            raise
        check_unchanged(self._folders_below(folder))

    def _folders_below(self, folder: str) -> list[WholeFolders]:
        """The folders that the frames of a call have read, which are then forgotten."""
        with self._folders_lock:
            found = [entry for entry in self._folders if entry[0].startswith(f"{folder}/")]
            self._folders = [entry for entry in self._folders if entry not in found]
        return [folders for _, folders in found]

    def filtered(self, frame: Any, where: str) -> Any:
        """The rows of any frame that meet a condition. Raises `BadFilter`."""
        match kind := frame_kind(type(frame)):
            case FrameKind.PANDAS:
                return frame.iloc[matching_places(frame, parsed_filter(where))]
            case FrameKind.POLARS | FrameKind.ARROW:
                return from_arrow(matching_rows(to_arrow(frame), parsed_filter(where)), kind)
            case _:
                return filtered(frame, filter_in(self.spark.session, where))

    def _session(self) -> Any:
        return self.spark.session

    def _filter(self, how: How) -> Filter | None:
        if how.where is None:
            return None
        if how.kind is FrameKind.SPARK:
            return filter_in(self.spark.session, how.where)
        return parsed_filter(how.where)

    def _needed(self, manifests: Sequence[Manifest], wanted: Filter, on_narrowed: OnNarrowed | None) -> list[Manifest]:
        """The manifests without the files in which, by their index, no row can match."""
        needed, _ = narrowed(self.warehouse, manifests, wanted)
        if on_narrowed is not None:
            both = zip(needed, manifests, strict=True)
            on_narrowed({left.instance_uuid: FilesRead(len(left.files), len(all_of.files)) for left, all_of in both})
        return needed

    def file_sizes(self, canonical: Sequence[Canonical], asset: str, how: How) -> dict[str, int]:
        """The bytes of each file of instances of one asset, without the files that a condition excludes."""
        manifests = manifests_in(self.warehouse, asset, canonical)
        if (wanted := self._filter(how)) is not None:
            manifests = self._needed(manifests, wanted, how.on_narrowed)
        return {_file_name(manifest, file): file.bytes for manifest in manifests for file in manifest.files}

    def _with_columns(self, asset: str, manifests: list[Manifest]) -> list[Manifest]:
        """The manifests that have columns: one returned as EMPTY before any other instance existed has none.

        If none has, as for the day before the first, the result is a neighbour's manifest without its files.
        """
        usable = [manifest for manifest in manifests if manifest.schema.columns]
        if not usable and (newest := neighbour(engine_for(self._instance).queries, asset)) is not None:
            usable = [msgspec.structs.replace(newest, files=())]
        return usable

    def load_foreign(self, asset: str, refs: Sequence[Ref], annotation: type, kind: FrameKind) -> Any:
        """A plain asset's partitions, loaded by Dagster and united. Raises `CannotLoad`."""
        assert self._graph is not None, "only a step loads plain assets"
        key = asset_key(asset)
        loaders = {known: self._graph.get(known).assets_def for known in self._graph.get_all_asset_keys()}
        with self._foreign_lock, AssetValueLoader(loaders, instance=self._instance) as loader:
            values = [
                loader.load_asset_value(key, python_type=annotation, partition_key=partition_key_of(ref))
                for ref in refs
            ]
        frames = [self._as_frame(value, ref, kind) for value, ref in zip(values, refs, strict=True)]
        return united(frames) if frames else no_rows(kind, self._session)

    def load_foreign_by_key(
        self, asset: str, by_key: Mapping[str, Sequence[Ref]], annotation: type, kind: FrameKind
    ) -> Any:
        """The same with the column of the output's partition key. Raises `CannotLoad`."""
        frames = []
        # An input without refs has no columns: the first day has no yesterday.
        for key, refs in ({key: refs for key, refs in by_key.items() if refs} or by_key).items():
            frame = self.load_foreign(asset, refs, annotation, kind)
            frames.append(with_key(frame, key))
        return united(frames)

    def _as_frame(self, value: Any, ref: Ref, kind: FrameKind) -> Any:
        """The value as a frame of that kind. Raises `CannotLoad`."""
        match found := frame_kind(type(value)):
            case _ if found is kind:
                return value
            case None:
                raise CannotLoad(
                    f"{ref} is a plain Dagster asset whose value is a {type(value).__qualname__}, "
                    f"not a {kind.shown}; return a DataFrame there, or name it in deps= and read it yourself."
                )
            case FrameKind.SPARK:
                return value.toPandas() if kind is FrameKind.PANDAS else from_arrow(arrow_of_frame(value), kind)
            case FrameKind.PANDAS if kind is FrameKind.SPARK:
                return self.spark.session.createDataFrame(value)
            case _ if kind is FrameKind.SPARK:
                return frame_of_arrow(self.spark.session, to_arrow(value))
            case _:
                return from_arrow(to_arrow(value), kind)


def _narrowed(manifest: Manifest, files: Collection[str]) -> Manifest:
    return msgspec.structs.replace(
        manifest, files=tuple(file for file in manifest.files if _file_name(manifest, file) in files)
    )


def _file_name(manifest: Manifest, file: FileEntry) -> str:
    return f"{manifest.instance_uuid}/{file.uri}"
