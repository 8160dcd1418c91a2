"""Frames in and out for one step: instances through Spark or pandas, plain assets through Dagster's own
loading.

May be called from many threads. The session is opened by whoever first needs it, so an asset of pandas alone
starts no Spark.
"""

import logging
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass
from threading import Lock, Thread, local
from typing import Any

import msgspec
from dagster import DagsterInstance

from databuild_dagster.bindings.adapter.asset_keys import asset_key
from databuild_dagster.bindings.adapter.dagster_private import AssetGraph, AssetValueLoader
from databuild_dagster.bindings.claims.results import WrittenInstance
from databuild_dagster.bindings.declare.parameters import ParameterKind, kind_of
from databuild_dagster.bindings.reading.spark_resource import forget_session_of
from databuild_dagster.bindings.registry.instance import engine_for
from databuild_dagster.data.part_attempts import attempts_before, remove_attempts_before
from databuild_dagster.data.read_plan import manifests_in, neighbour
from databuild_dagster.model.refs import asset_of, derive_partition_uuid, partition_key_of
from databuild_dagster.spark.failures import explain_failure, is_lost, is_of_the_machine, is_transient
from databuild_dagster.spark.frames import filter_in, filtered, no_rows, read_instances, read_pandas, united
from databuild_dagster.spark.interrupt import interrupt_begun
from databuild_dagster.spark.keyed import read_keyed, read_keyed_pandas, with_key
from databuild_dagster.spark.schemas import Columns
from databuild_dagster.spark.session import interrupt, tag_operations
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
from databuild_dagster.store.queries.canonical import Canonical
from databuild_dagster.warehouse import disk
from databuild_dagster.warehouse.errors import ManifestMissing
from databuild_dagster.warehouse.file_index import FilesRead, narrowed
from databuild_dagster.warehouse.filtering import matching_places
from databuild_dagster.warehouse.filters import Filter, parsed_filter
from databuild_dagster.warehouse.layout import Warehouse
from databuild_dagster.warehouse.manifest import FileEntry, Manifest, ManifestState, TableSchema, read_manifests

_log = logging.getLogger(__name__)

#: Columns of what was never anything but EMPTY.
NO_COLUMNS = TableSchema((), spark='{"type":"struct","fields":[]}')


#: Hears, by instance, how many files of how many are read.
OnNarrowed = Callable[[Mapping[str, FilesRead]], None]


#: How long a call that is to stop may go on asking Spark for more; after that all that carries its tag is interrupted once.
LONGEST_STOP_SECONDS = 60.0
LOOK_EVERY_SECONDS = 0.1


class CannotLoad(Exception):
    """A plain asset's value is not what the parameter is annotated with; the message says both."""


class Frames:
    """Reads and writes for the job runs of one step."""

    def __init__(
        self,
        *,
        spark_resource: Any,
        warehouse: str,
        instance: DagsterInstance,
        graph: AssetGraph | None = None,
        on_session: Callable[[Any], None] = lambda session: None,
    ) -> None:
        self.spark_resource = spark_resource
        self._warehouse = Warehouse(warehouse)
        self._instance = instance
        self._graph = graph
        #: Hears of the session when it is open.
        self._on_session = on_session
        self._session: Any = None
        self._lock = Lock()
        #: Of each thread, the call that it is in.
        self._local = local()
        #: How many calls that go on carry a tag.
        self._in_use: Counter[str] = Counter()
        self._in_use_lock = Lock()
        #: Dagster's loading keeps its resources in one place and is not made for threads.
        self._foreign_lock = Lock()

    @property
    def session(self) -> Any:
        """The Spark session; inside `interruptible` what this thread runs in it carries the tags. Raises what
        opening it raises."""
        with self._lock:
            is_new = self._session is None
            if is_new:
                self._session = self.spark_resource.spark_session
            session = self._session
        if is_new:
            self._on_session(session)
        call = getattr(self._local, "call", None)
        if call is not None and call.session is not session:
            call.session = session
            for tag in call.tags:
                call.held.enter_context(tag_operations(session, tag))
        return session

    @contextmanager
    def interruptible(self, *tags: str) -> Iterator[None]:
        """What this thread runs in Spark inside the block can be stopped by any of its tags."""
        with ExitStack() as held:
            self._local.call = _SparkUse(tags, held)
            with self._in_use_lock:
                self._in_use.update(tags)
            try:
                yield
            finally:
                with self._in_use_lock:
                    self._in_use.subtract(tags)

    def interrupt(self, tag: str) -> None:
        """Stop what runs with the tag, from any thread; a server that does not answer has nothing to stop.

        As long as calls with the tag go on, what Spark begins for them is stopped as it begins (`interrupt_begun`).
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
        except Exception as error:  # PySpark's, grpc's and py4j's have no class in common.
            _log.warning("databuild: what runs as %s could not be interrupted: %s", tag, explain_failure(error))

    def begin_to_interrupt(self, tag: str) -> None:
        """`interrupt` in a thread of its own: it may wait, and a server that hangs must not stop whoever stops others."""
        Thread(target=self.interrupt, args=(tag,), name="databuild interrupt", daemon=True).start()

    @property
    def warehouse(self) -> Warehouse:
        """Where it writes."""
        return self._warehouse

    # In

    def read(
        self,
        canonical: Sequence[Canonical],
        asset: str,
        *,
        pandas: bool,
        files: Collection[str] | None = None,
        where: str | None = None,
        on_narrowed: OnNarrowed | None = None,
    ) -> Any:
        """One frame of instances of one asset; of some of their `files` only, as `file_sizes` names them, if given, and
        of the rows that a condition lets through.

        `on_narrowed` hears what the condition spares. Raises `BadFilter` too.
        """
        wanted = self._filter(where, pandas=pandas)
        manifests = self._with_columns(asset, self.manifests(canonical, asset))
        if files is not None:
            manifests = [_narrowed(manifest, files) for manifest in manifests]
        elif wanted is not None:
            manifests = self._needed(manifests, wanted, on_narrowed)
        if not manifests:
            return no_rows(None if pandas else self.session)
        if pandas:
            return read_pandas(self._warehouse, manifests, where=wanted)
        frame = read_instances(self.session, self._warehouse, manifests)
        return frame if wanted is None else filtered(frame, wanted)

    def read_by_key(
        self,
        by_key: Mapping[str, Sequence[Canonical]],
        asset: str,
        folder: str,
        *,
        pandas: bool,
        where: str | None = None,
        on_narrowed: OnNarrowed | None = None,
    ) -> Any:
        """One frame of instances of one asset, with the column of the output's partition key.

        What Spark reads hangs on `folder`, which is made here. The rest is as for `read`.
        """
        wanted = self._filter(where, pandas=pandas)
        distinct = {each.uuid: each for found in by_key.values() for each in found}
        known = {manifest.instance_uuid: manifest for manifest in self.manifests(list(distinct.values()), asset)}
        usable = self._with_columns(asset, list(known.values()))
        if not usable:
            return no_rows(None if pandas else self.session, PARTITION_KEY)
        if wanted is not None:
            usable = self._needed(usable, wanted, on_narrowed)
        of_uuid = {manifest.instance_uuid: manifest for manifest in usable}
        keyed = {key: [of_uuid[e.uuid] for e in found if e.uuid in of_uuid] for key, found in by_key.items()}
        if not any(keyed.values()):
            keyed = dict.fromkeys(list(by_key)[:1], usable)
        if pandas:
            return read_keyed_pandas(self._warehouse, keyed, where=wanted)
        frame = read_keyed(self.session, self._warehouse, keyed, folder)
        return frame if wanted is None else filtered(frame, wanted)

    def filtered(self, frame: Any, where: str, *, pandas: bool) -> Any:
        """The rows of any frame that a condition lets through. Raises `BadFilter`."""
        if pandas:
            return frame.iloc[matching_places(frame, parsed_filter(where))]
        return filtered(frame, filter_in(self.session, where))

    def _filter(self, where: str | None, *, pandas: bool) -> Filter | None:
        if where is None:
            return None
        return parsed_filter(where) if pandas else filter_in(self.session, where)

    def _needed(self, manifests: Sequence[Manifest], wanted: Filter, on_narrowed: OnNarrowed | None) -> list[Manifest]:
        """Without the files of which an index says that no row of theirs can match."""
        needed, _ = narrowed(self._warehouse, manifests, wanted)
        if on_narrowed is not None:
            on_narrowed(
                {
                    left.instance_uuid: FilesRead(len(left.files), len(whole.files))
                    for left, whole in zip(needed, manifests, strict=True)
                }
            )
        return needed

    def file_sizes(
        self,
        canonical: Sequence[Canonical],
        asset: str,
        *,
        pandas: bool,
        where: str | None = None,
        on_narrowed: OnNarrowed | None = None,
    ) -> dict[str, int]:
        """The files of instances of one asset, each by its name and that of its instance, and its bytes; without those
        that a condition spares."""
        manifests = self.manifests(canonical, asset)
        if (wanted := self._filter(where, pandas=pandas)) is not None:
            manifests = self._needed(manifests, wanted, on_narrowed)
        return {_file_name(manifest, file): file.bytes for manifest in manifests for file in manifest.files}

    def manifests(self, canonical: Sequence[Canonical], asset: str) -> list[Manifest]:
        """What instances of one asset hold."""
        return manifests_in(self._warehouse, asset, canonical)

    def _with_columns(self, asset: str, manifests: list[Manifest]) -> list[Manifest]:
        """Where EMPTY was returned before any neighbour had columns, the others' columns are its own too.

        Where there is no partition at all, as for yesterday on the first day, or nothing but EMPTY: no rows, but
        a neighbour's columns.
        """
        usable = [manifest for manifest in manifests if manifest.schema.columns]
        if not usable and (neighbour := self._neighbour(asset)) is not None:
            usable = [msgspec.structs.replace(neighbour, files=())]
        return usable

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
        return united(frames) if frames else no_rows(None if pandas else self.session)

    def load_foreign_by_key(
        self, asset: str, by_key: Mapping[str, Sequence[str]], annotation: type, *, pandas: bool
    ) -> Any:
        """The same with the column of the output's partition key. Raises `CannotLoad`."""
        frames = []
        # The first day has no yesterday, and no columns.
        for key, refs in ({key: refs for key, refs in by_key.items() if refs} or by_key).items():
            frame = self.load_foreign(asset, refs, annotation, pandas=pandas)
            frames.append(frame.assign(**{PARTITION_KEY: key}) if pandas else with_key(frame, key))
        return united(frames)

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

    def staging(self, name: str) -> AbstractContextManager[str]:
        """A folder for one call of a function."""
        return staging(self._warehouse, name)

    def stage(self, frame: Any, folder: str, ref: str, inputs: Mapping[str, str]) -> Staged:
        """Write what was returned for one ref, None for intentionally nothing. Raises what writing raises."""
        if _is_nothing(frame):
            return self._nothing(asset_of(ref), folder)
        return stage_instance(frame, folder, ref=ref, coalesce=files_wanted(self._input_manifests(inputs)))

    def stage_batch(
        self, frame: Any, folder: str, asset: str, keys: Collection[str], inputs: Mapping[str, Mapping[str, str]]
    ) -> dict[str, Staged]:
        """Write what was returned for a batch of partition keys in one go; `inputs` by key."""
        if _is_nothing(frame) or (list(frame.columns) == [PARTITION_KEY] and _has_no_rows(frame)):
            return dict.fromkeys(keys, self._nothing(asset, folder))
        everything = self._input_manifests({ref: uuid for found in inputs.values() for ref, uuid in found.items()})
        of_uuid = {manifest.instance_uuid: manifest for manifest in everything}
        by_key = {key: [of_uuid[u] for u in found.values() if u in of_uuid] for key, found in inputs.items()}
        return stage_batch(frame, folder, asset=asset, keys=keys, is_large=is_large(by_key.values()))

    def staged(self, staged: Mapping[str | None, Staged], *, pandas: bool, by_key: bool) -> Any:
        """What was staged as one frame; with the column of the partition key where it is of a batch."""
        return read_staged(None if pandas else self.session, staged, by_key=by_key)

    def publish(
        self,
        staged: Staged,
        job_run_id: str,
        ref: str,
        inputs: Mapping[str, str],
        *,
        state: ManifestState | None = None,
        comment: str = "",
        children: Sequence[str] = (),
        lot_id: str | None = None,
    ) -> WrittenInstance:
        """Give what is staged its place and its manifest, or those `children` one together. Raises what writing raises."""
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
        return WrittenInstance(
            asset=asset_of(ref),
            uuid=uuid,
            state=manifest.state.value,
            uri=self._warehouse.manifest_path(asset_of(ref), uuid),
            files=len(manifest.files),
            rows=manifest.rows,
            bytes=manifest.bytes,
            manifest=manifest,
        )

    def discard(self, job_run_id: str, ref: str) -> None:
        """Remove what was written for a ref, if anything was."""
        self._warehouse.remove_instance(asset_of(ref), derive_partition_uuid(job_run_id, ref))

    def attempts_before(self, job_run_id: str, ref: str) -> list[str]:
        """The instances of failed attempts since the ref was last live, the newest first."""
        return attempts_before(engine_for(self._instance).queries, ref, derive_partition_uuid(job_run_id, ref))

    def remove_attempts_before(self, job_run_id: str, ref: str) -> None:
        """Raises what removing raises."""
        uuid = derive_partition_uuid(job_run_id, ref)
        remove_attempts_before(engine_for(self._instance).queries, self._warehouse, ref, uuid)

    def lasting_folder(self, job_run_id: str) -> str:
        """A folder in which nothing is staged, and that is there until somebody removes it: whoever finds it without its
        process knows that the job run left something to be cleaned up (`remains`)."""
        folder = self._warehouse.new_staging_dir(job_run_id)
        disk.make_dirs(folder)
        return folder

    def columns_of(self, asset: str) -> Columns | None:
        """Those of the live instance of an asset that was made last, None where there is nothing to compare with."""
        newest = self._neighbour(asset)
        return None if newest is None else Columns(newest.ref, newest.schema)

    def attempts(self, refs: Iterable[str]) -> dict[str, int]:
        """How often each was tried since it was last live or tainted (SPEC 6.8)."""
        return engine_for(self._instance).queries.attempts(refs)

    def _neighbour(self, asset: str) -> Manifest | None:
        return neighbour(engine_for(self._instance).queries, asset)

    def _nothing(self, asset: str, folder: str) -> Staged:
        neighbour = self._neighbour(asset)
        return Staged(folder, (), neighbour.schema if neighbour else NO_COLUMNS)

    def _input_manifests(self, inputs: Mapping[str, str]) -> list[Manifest]:
        """What a plain asset has is not ours to measure."""
        by_asset: dict[str, list[str]] = {}
        for ref, uuid in inputs.items():
            by_asset.setdefault(asset_of(ref), []).append(uuid)
        try:
            return [m for asset, uuids in by_asset.items() for m in read_manifests(self._warehouse, asset, uuids)]
        except ManifestMissing:
            return []

    # Trouble

    def explain(self, error: BaseException) -> str:
        """One sentence."""
        return explain_failure(error)

    def is_lost(self, error: BaseException) -> bool:
        """Whether the session went with it: whatever else is tried in it now would fail too."""
        return is_lost(error)

    def forget_lost_session(self) -> None:
        """The session that this thread's last call used is not used again; who was faster has another by now."""
        call = getattr(self._local, "call", None)
        with self._lock:
            if call is not None and self._session is not None and self._session is call.session:
                forget_session_of(self.spark_resource, self._session)
                self._session = None

    def is_of_the_machine(self, error: BaseException) -> bool:
        """Whether it is this machine that lacks something, whatever is built."""
        return is_of_the_machine(error)

    def is_transient(self, error: BaseException) -> bool:
        """Whether the same again may go well."""
        return is_transient(error)


@dataclass
class _SparkUse:
    """One call's use of Spark, in the thread that makes it."""

    tags: tuple[str, ...]
    held: ExitStack
    session: Any = None


def _narrowed(manifest: Manifest, files: Collection[str]) -> Manifest:
    return msgspec.structs.replace(
        manifest, files=tuple(file for file in manifest.files if _file_name(manifest, file) in files)
    )


def _file_name(manifest: Manifest, file: FileEntry) -> str:
    return f"{manifest.instance_uuid}/{file.uri}"


def _is_nothing(frame: Any) -> bool:
    """Parquet has no files without columns; such a frame is made of nothing but EMPTY inputs."""
    return frame is None or len(frame.columns) == 0


def _has_no_rows(frame: Any) -> bool:
    return bool(frame.isEmpty() if hasattr(frame, "isEmpty") else frame.empty)
