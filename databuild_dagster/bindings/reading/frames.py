"""Frames for a step: instances through Spark or in memory, plain assets through Dagster's loading. Thread-safe."""

import os
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from threading import Lock, Thread, local
from typing import Any, NamedTuple

import msgspec
from dagster import DagsterInstance

from databuild_dagster.bindings.adapter.dagster_private import AssetGraph, AssetValueLoader
from databuild_dagster.bindings.adapter.keys import asset_key
from databuild_dagster.bindings.reading.spark_resource import forget_session_of
from databuild_dagster.bindings.registry.instance import engine_for
from databuild_dagster.data.read_plan import manifests_in, neighbour
from databuild_dagster.model.errors import DatabuildError
from databuild_dagster.model.logs import logger
from databuild_dagster.model.refs import PARTITION_KEY, Ref, asset_of, partition_key_of
from databuild_dagster.spark.failures import explain_failure, is_lost
from databuild_dagster.spark.frames import filter_in, filtered, in_one_task, no_rows, read_arrow, read_instances, united
from databuild_dagster.spark.interrupt import interrupt_begun
from databuild_dagster.spark.keyed import read_keyed, read_keyed_arrow, with_key
from databuild_dagster.spark.memory_frames import FrameKind, column_names, frame_kind, from_arrow, has_no_rows, to_arrow
from databuild_dagster.spark.project_modules import send_project_modules
from databuild_dagster.spark.pyspark_names import arrow_of_frame, frame_of_arrow
from databuild_dagster.spark.reach import Reach, check_reach, in_place
from databuild_dagster.spark.schemas import Columns
from databuild_dagster.spark.session import active_in_thread, has_workers_elsewhere, interrupt, tag_operations
from databuild_dagster.spark.staging import Known, Staged, files_wanted, stage_batch, stage_instance
from databuild_dagster.store.queries.canonical import Canonical
from databuild_dagster.warehouse.errors import DiskTrouble, ManifestMissing, StorageTrouble
from databuild_dagster.warehouse.file_index import FilesRead, narrowed
from databuild_dagster.warehouse.filters import Filter, matching_places, matching_rows, parsed_filter
from databuild_dagster.warehouse.layout import Warehouse
from databuild_dagster.warehouse.manifest import FileEntry, Manifest, TableSchema, kept_manifests
from databuild_dagster.warehouse.whole_folders import WholeFolders, check_unchanged

#: A stopped call may start operations for so long; then all operations with its tag are interrupted once more.
LONGEST_STOP_SECONDS = 60.0
LOOK_EVERY_SECONDS = 0.1
#: The schema of an asset that has returned only EMPTY so far.
NO_COLUMNS = TableSchema((), spark='{"type":"struct","fields":[]}')

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
    """Reads for the job runs of a step. `writer` writes for them, in the session of `spark`."""

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
        """A frame of instances of an asset; `files`, named as by `file_sizes`, restricts it to some files.

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
        frame = in_one_task(read_instances(self.spark.session, self.warehouse, manifests), manifests)
        return frame if wanted is None else filtered(frame, wanted)

    def read_by_key(self, by_key: Mapping[str, Sequence[Canonical]], asset: str, how: How, folder: str) -> Any:
        """A frame of instances of an asset, with the column of the output's partition key.

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
        frame = in_one_task(frame, [manifest for found in keyed.values() for manifest in found])
        return frame if wanted is None else filtered(frame, wanted)

    def _note_folders(self, folder: str, folders: WholeFolders) -> None:
        with self._folders_lock:
            self._folders.append((folder, folders))

    @contextmanager
    def unchanged_folders(self, folder: str) -> Iterator[None]:
        """Check, after the block, that the inputs of a call were the listed files alone (decision 0040).

        `folder` is the folder of the call, above the folders of its frames. An error of the block may come from a file that was
        added or removed. Raises `FolderChanged`, `DiskTrouble`, `StorageTrouble`, and what the block raises.
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
        """The bytes of each file of instances of an asset, without the files that a condition excludes."""
        manifests = manifests_in(self.warehouse, asset, canonical)
        if (wanted := self._filter(how)) is not None:
            manifests = self._needed(manifests, wanted, how.on_narrowed)
        return {_file_name(manifest, file): file.bytes for manifest in manifests for file in manifest.files}

    def _with_columns(self, asset: str, manifests: list[Manifest]) -> list[Manifest]:
        """The manifests that have columns: an instance returned as EMPTY before any other instance existed has no columns.

        If no manifest has columns, as for the day before the first, the result is a neighbour's manifest without its files.
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


# The session


@dataclass
class _Call:
    """A call's use of Spark, in the thread of the call."""

    tags: tuple[str, ...]
    held: ExitStack
    session: Any = None


class SparkUse:
    """The Spark session of a step, shared by its threads.

    The first thread that needs the session opens it, so an asset of pandas alone starts no Spark. Operations inside of
    `interruptible` carry tags, by which any thread can stop them.
    """

    def __init__(
        self,
        resource: Any,
        on_session: Callable[[Any], None] = lambda session: None,
        check: Callable[[Any], None] = lambda session: None,
    ) -> None:
        """`check` raises a `DatabuildError` for a new session that this step cannot use."""
        self.resource = resource
        self._on_session = on_session
        self._check = check
        self._session: Any = None
        self._refusal: DatabuildError | None = None
        self._lock = Lock()
        #: Per thread, its current call.
        self._local = local()
        #: Tag to the number of running calls that carry it.
        self._in_use: Counter[str] = Counter()
        self._in_use_lock = Lock()

    @property
    def is_remote(self) -> bool:
        """Whether the Spark is remote, as far as the resource says before a session is open."""
        return getattr(self.resource, "mode", None) == "remote"

    @property
    def session(self) -> Any:
        """The session. Inside of `interruptible`, this thread's operations carry the tags.

        Raises errors of opening and of the check.
        """
        with self._lock:
            is_new = self._session is None
            if is_new:
                self._session = self._opened()
            session = self._session
        if is_new:
            self._on_session(session)
        call = getattr(self._local, "call", None)
        if call is not None and call.session is not session:
            call.session = session
            call.held.enter_context(active_in_thread(session))
            for tag in call.tags:
                call.held.enter_context(tag_operations(session, tag))
        if has_workers_elsewhere(session):
            send_project_modules()
        return session

    def _opened(self) -> Any:
        """A session that was checked. A refusal counts for all threads: a launch does not ask again for each of its refs."""
        if self._refusal is not None:
            raise self._refusal
        session = self.resource.spark_session
        try:
            self._check(session)
        except DatabuildError as error:
            if is_lost(error):
                forget_session_of(self.resource, session)
            else:
                self._refusal = error
            raise
        return session

    @contextmanager
    def interruptible(self, *tags: str) -> Iterator[None]:
        """This thread's Spark operations inside of the block can be stopped by any of the tags."""
        with ExitStack() as held:
            self._local.call = _Call(tags, held)
            with self._in_use_lock:
                self._in_use.update(tags)
            try:
                yield
            finally:
                with self._in_use_lock:
                    self._in_use.subtract(tags)

    def interrupt(self, tag: str) -> None:
        """Stop the operations with a tag, from any thread. A server that does not answer has nothing to stop.

        While calls with the tag run, each new operation of theirs is stopped when it begins (`interrupt_begun`).
        """
        until = time.monotonic() + LONGEST_STOP_SECONDS
        try:
            while self._in_use[tag] > 0 and time.monotonic() < until:
                session = self._session
                if session is not None and not interrupt_begun(session, tag):
                    break
                time.sleep(LOOK_EVERY_SECONDS)
            if self._session is not None:
                interrupt(self._session, tag)
        except Exception as error:  # The errors of PySpark, grpc and py4j have no common class.
            _log.warning("databuild: the Spark operations of %s cannot be interrupted: %s", tag, explain_failure(error))

    def begin_to_interrupt(self, tag: str) -> None:
        """`interrupt` in a new thread: it may wait, and a server that hangs must not delay other interrupts."""
        Thread(target=self.interrupt, args=(tag,), name="databuild interrupt", daemon=True).start()

    def forget_lost_session(self) -> None:
        """Drop the session that this thread's last call used, unless some thread has replaced it already."""
        call = getattr(self._local, "call", None)
        with self._lock:
            if call is not None and self._session is not None and self._session is call.session:
                forget_session_of(self.resource, self._session)
                self._session = None


# Writing


class InstanceWriter:
    """Writes for the job runs of a step. Thread-safe.

    How many files a frame becomes, and which columns an EMPTY result has, follows from the log.
    """

    def __init__(self, warehouse: Warehouse, instance: DagsterInstance) -> None:
        self._warehouse = warehouse
        self._instance = instance

    def stage(self, frame: Any, folder: str, ref: Ref, inputs: Mapping[Ref, str], known: Known) -> Staged:
        """Write the frame of a ref; None is EMPTY. Raises errors of writing."""
        if _is_nothing(frame):
            return self._nothing(asset_of(ref), folder)
        reach = self._reach_of(frame)
        coalesce = files_wanted(self._input_manifests(inputs))
        with self._place(asset_of(ref), folder, reach) as place:
            return stage_instance(frame, place, ref=ref, coalesce=coalesce, reach=reach, known=known)

    def stage_batch(
        self,
        frame: Any,
        folder: str,
        asset: str,
        keys: Collection[str],
        inputs: Mapping[str, Mapping[Ref, str]],
        known: Known,
    ) -> dict[str, Staged]:
        """Write the frame of a batch of partition keys at once; `inputs` is by key."""
        if _is_nothing(frame) or (column_names(frame) == [PARTITION_KEY] and has_no_rows(frame)):
            return dict.fromkeys(keys, self._nothing(asset, folder))
        everything = self._input_manifests({ref: uuid for found in inputs.values() for ref, uuid in found.items()})
        of_uuid = {manifest.instance_uuid: manifest for manifest in everything}
        by_key = {key: [of_uuid[uuid] for uuid in found.values() if uuid in of_uuid] for key, found in inputs.items()}
        reach = self._reach_of(frame)
        with self._place(asset, folder, reach) as place:
            return stage_batch(frame, place, asset=asset, keys=keys, inputs=by_key.values(), reach=reach, known=known)

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
        """The manifests of inputs; empty if any manifest is missing: a plain asset has no manifest."""
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
