"""A lot in parts: the function is called per part; the lot is published when all parts are done (rule 10.4).

A finished part has its manifest in the instance's folder at once, and its files there or in an attempt's folder. No
reader sees any of it before the lot's own manifest. A failed part does not affect other parts. `LotInParts` does not know the
engine: the caller ends the lot's job run.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import wait
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import partial, reduce
from hashlib import sha256
from threading import BoundedSemaphore, Lock
from typing import Any

import msgspec

from databuild_dagster.bindings.building.arguments import SplitInput
from databuild_dagster.bindings.building.call import Call, Leftovers, Stops, Tools
from databuild_dagster.bindings.building.outputs import Outputs, unwrapped
from databuild_dagster.bindings.claims.results import Attempt, Failed, Missed, Result
from databuild_dagster.bindings.declare.build_context import BuildContext, HostedRun
from databuild_dagster.bindings.declare.outcomes import EMPTY, BadResult, DepMiss
from databuild_dagster.bindings.registry.lot_partitions import lot_id_of
from databuild_dagster.data.inputs import Inputs
from databuild_dagster.features.lots.parts.lot_parts import ByFile, PartSplit, text_of_key, why_no_key
from databuild_dagster.model.errors import DatabuildError
from databuild_dagster.model.lots import MAX_PARTS, balanced
from databuild_dagster.model.redaction import traceback_of
from databuild_dagster.model.refs import Ref, asset_of, derive_partition_uuid
from databuild_dagster.model.wording import counted, few_of
from databuild_dagster.spark.errors import BadPartColumn
from databuild_dagster.spark.failures import explain_failure, is_lost
from databuild_dagster.spark.keyed import rows_of, values_of
from databuild_dagster.spark.schemas import united_columns, why_not_fitting
from databuild_dagster.spark.staging import Staged, publish
from databuild_dagster.warehouse.files import publish_files
from databuild_dagster.warehouse.formats import format_named
from databuild_dagster.warehouse.layout import Warehouse
from databuild_dagster.warehouse.manifest import Manifest, ManifestState
from databuild_dagster.warehouse.parts import (
    PartManifest,
    children_of,
    is_the_same,
    kept_parts,
    lot_as_a_whole,
    lot_state,
    share_parts,
    why_columns_differ,
    write_part,
)
from databuild_dagster.warehouse.threads import DaemonThreads, in_threads

#: Failed parts of a lot whose tracebacks are logged.
MAX_TRACEBACKS = 3


class PartsCaller:
    """Calls the function of a step for each part of a lot."""

    def __init__(
        self, split: PartSplit, tools: Tools, outputs: Outputs, stops: Stops, leftovers: Leftovers, *, threads: int
    ) -> None:
        self._split = split
        self._tools = tools
        self._body = tools.body
        self._frames = tools.frames
        self._outputs = outputs
        self._stops = stops
        self._leftovers = leftovers
        #: Parts built at the same time, of all lots together.
        self._parts_at_once = split.at_once or threads
        self._part_slots = BoundedSemaphore(self._parts_at_once)

    def call(self, call: Call, inputs: Mapping[Ref, Inputs], context: BuildContext, folder: str) -> Attempt:
        """Call the function per part. Finished parts stay if a part fails, and are removed if the lot fails (rule 10.4)."""
        split = self._split
        (run,), (ref,) = call.runs, call.refs
        asset = asset_of(ref)
        lot = LotInParts(
            ref,
            split,
            self._tools.arguments.split_input(split.input, run, inputs),
            uuid=derive_partition_uuid(run.id, ref),
            job_run=run.id,
            warehouse=self._frames.warehouse,
            code_version=self._tools.datasets[asset].code_version or self._tools.datasets[asset].code_text,
            declared=call.used[ref],
            filters=self._body.filters,
            attempt=run.attempt,
            lot_id=lot_id_of(self._tools.datasets[asset], run.partition_key),
        )

        def call_part(part: Part) -> None:
            """Runs in its own thread, with its own tags in Spark, so that stopping the job run stops it too."""
            used = dict(call.used[ref])
            of_part = self._tools.build_context(call, [used])
            with self._frames.spark.interruptible(self._tools.launch_id, run.id), self._logging_failure_of(part, call):
                self._stops.raise_if_all(call)
                if self._body.uses_spark:
                    _ = self._frames.spark.session  # Tags of Spark work belong to a thread.
                given = {split.input: lot.input_of(part)}
                arguments = self._tools.arguments.of(call.runs, inputs, of_part, folder, given)
                answer = unwrapped(self._body.function(**arguments), self._tools.job, of_part)
                result = self._outputs.checked(answer, asset)
                self._stops.raise_if_all(call)
                frame = None if result is EMPTY else result
                place = os.path.join(folder, f"part-{part.number}")
                staged = self._frames.writer.stage(frame, place, ref, used, partial(self._outputs.known_columns, asset))
                if staged.files:  # A part without rows fits any columns.
                    self._outputs.check_columns(ref, staged)
                self._stops.raise_if_all(call)
                lot.publish(part, staged, used)
            context.add_output_metadata(of_part.output_metadata(ref))

        try:
            lot.find_parts()
            lot.take_over_kept(self._leftovers.attempts_before(run, ref), self._tools.arguments.are_current)
            self._tools.context.log.info(lot.announced())
            lot.build(call_part, self._part_slots, self._parts_at_once)
            self._stops.raise_if_all(call)
            if lot.failed or lot.missed:
                return Attempt((self._incomplete(run, lot),))
            call.used[ref].update(lot.inputs)
            call.children = lot.children
            call.whole, call.staged[ref] = lot.whole, lot.staged()
            self._outputs.check(call, asset, context)
            self._stops.raise_if_all(call)
        except BaseException:
            self._leftovers.discard(run)
            raise
        context.add_output_metadata({"databuild/parts": len(lot.parts), "databuild/parts_reused": len(lot.reused)})
        return Attempt(tuple(self._outputs.published(call, context, call.runs)))

    @contextmanager
    def _logging_failure_of(self, part: Part, call: Call) -> Iterator[None]:
        """Log the failure of a part at once, because other parts may take long."""
        try:
            yield
        except DepMiss as miss:
            if miss.by_name:
                named = next(iter(miss.by_name))
                raise BadResult(
                    f"{self._tools.job} raised DepMiss for {named!r}, but builds one thing only; "
                    "name the missing refs alone, as in DepMiss(ref)."
                ) from miss
            raise
        except BaseException as error:
            if is_lost(error):
                self._frames.spark.forget_lost_session()
            if not self._stops.are_all(call.runs):
                self._tools.context.log.warning(f"Part {part.name} of {call.refs[0]} failed: {explain_failure(error)}")
            raise

    def _incomplete(self, run: HostedRun, lot: LotInParts) -> Result:
        """Some parts failed or missed inputs: finished parts are kept for the next attempt."""
        why = lot.why_incomplete(explain_failure)
        try:
            kept = self._kept(run, lot, why)
        except DatabuildError as error:
            self._leftovers.discard(run)
            kept = f"The finished parts could not be kept: {error}"
        if not lot.failed:
            self._tools.context.log.info(f"{lot.ref}: {why} {kept}")
            return Missed(run, {lot.ref: lot.missing})
        details = [
            f"Part {part.name}:\n{traceback_of(error)}" for part, error in list(lot.failed.items())[:MAX_TRACEBACKS]
        ]
        transient = all(self._tools.is_transient(error) for error in lot.failed.values())
        first = next(iter(lot.failed.values()))
        return self._tools.owned(Failed(run, why, transient, "\n".join([*details, kept]), cause=first), first)

    def _kept(self, run: HostedRun, lot: LotInParts, why: str) -> str:
        """Keep the finished parts; returns a sentence with their place. Raises errors of writing."""
        if not lot.done:
            self._leftovers.discard(run)
            return ""
        publish(
            lot.staged(),
            lot.warehouse,
            ref=lot.ref,
            uuid=lot.uuid,
            job_run=lot.job_run,
            inputs=lot.inputs,
            state=lot.state,
            comment=why,
            children=lot.children,
            lot_id=lot.lot_id,
            attempt=lot.attempt,
        )
        uri = lot.warehouse.manifest_path(asset_of(lot.ref), lot.uuid)
        return f"The files of {counted(len(lot.done), 'part')} are kept in {uri}."


@dataclass(frozen=True, slots=True)
class Part:
    """A piece of a lot with its own manifest."""

    number: int
    #: Its name for people.
    name: str
    #: Identifies the piece: two parts with the same text have the same input rows if the input instances are the same.
    split: str
    #: The input's names of the files, in a split by file.
    files: tuple[str, ...] | None = None
    #: The key's value in a split by key; None is null.
    key: Any = None


class CannotSplit(BadResult):
    """A lot cannot be split in the declared way; the message has the reason and the remedy."""


def split_by_file(split: ByFile, sizes: Mapping[str, int], asset: str) -> list[Part]:
    """The parts by file, at least one: an input without files is a single part without files."""
    bins = balanced(sizes, split.parts) or [()]
    return [
        Part(
            number,
            f"{number + 1} of {len(bins)}",
            f"{asset} by file, {number + 1} of {len(bins)}: {_digest(files)}",
            files=files,
        )
        for number, files in enumerate(bins)
    ]


def split_by_key(values: Iterable[Any], column: str, asset: str) -> list[Part]:
    """The parts by key, at least one: an input without rows is a single part, of its null keys."""
    found = list(values) or [None]
    for value in found:
        if why := why_no_key(value):
            raise BadPartColumn(asset=asset, column=column, why=why)
    if len(found) > MAX_PARTS:
        raise CannotSplit(
            f"{asset} has more than {MAX_PARTS:,} values of {column!r}, and each would be a part; "
            "split it by another column, or by file."
        )
    # Ordered by text: the values of a column have one type, but None has no order.
    ordered = sorted(found, key=lambda value: (value is None, str(value)))
    return [
        Part(
            number,
            f"{column}={text_of_key(value)}",
            f"{asset} by key {column}, {number + 1} of {len(ordered)}: {type(value).__name__} {value!r}",
            key=value,
        )
        for number, value in enumerate(ordered)
    ]


@dataclass
class LotInParts:
    """The parts of a lot, from the split to their common manifest."""

    ref: Ref
    split: PartSplit
    source: SplitInput
    uuid: str
    job_run: str
    warehouse: Warehouse
    code_version: str | None
    #: Input ref to uuid, before anything is read at run time.
    declared: Mapping[Ref, str]
    #: Parameter to condition; other conditions mean other rows.
    filters: Mapping[str, str]
    attempt: int
    lot_id: str | None
    parts: list[Part] = field(default_factory=list)
    done: dict[int, PartManifest] = field(default_factory=dict)
    reused: set[int] = field(default_factory=set)
    #: In order of occurrence.
    failed: dict[Part, BaseException] = field(default_factory=dict)
    missed: dict[Part, DepMiss] = field(default_factory=dict)
    _whole: Any = None
    _lock: Any = field(default_factory=Lock)

    def find_parts(self) -> None:
        """Raises `CannotSplit`, `BadPartColumn`, and errors of reading the input."""
        conditions = "".join(f"; {name} where {where}" for name, where in sorted(self.filters.items()))
        self.parts = [replace(part, split=f"{part.split}{conditions}") for part in self._found_parts()]

    def _found_parts(self) -> list[Part]:
        if isinstance(self.split, ByFile):
            return split_by_file(self.split, self.source.file_sizes(), self.source.asset)
        self._whole = self.source.whole()
        column = self.split.column
        values = self.split.values
        if values is None:
            values = values_of(self._whole, column, self.source.asset, MAX_PARTS)
        return split_by_key(values, column, self.source.asset)

    def input_of(self, part: Part) -> Any:
        """The frame that replaces the whole input in the call for a part."""
        if isinstance(self.split, ByFile):
            assert part.files is not None
            return self.source.of_files(part.files)
        return rows_of(self._whole, self.split.column, part.key)

    def take_over_kept(self, attempts: Iterable[str], are_current: Callable[[Mapping[Ref, str]], bool]) -> None:
        """Reuse the parts that earlier attempts kept, where a build would repeat them; `are_current` checks the
        instances read at run time. Raises errors of writing."""
        for uuid in attempts:
            kept = {manifest.split: manifest for manifest in kept_parts(self.warehouse, asset_of(self.ref), uuid)}
            same = {
                part.number: found
                for part in self.parts
                if part.number not in self.done
                and (found := kept.get(part.split)) is not None
                and is_the_same(found, split=part.split, code_version=self.code_version, inputs=self.declared)
            }
            current = {
                number: found
                for number, found in same.items()
                if are_current({ref: uuid for ref, uuid in found.inputs.items() if ref not in self.declared})
            }
            taken = share_parts(self.warehouse, current, uuid=self.uuid, job_run=self.job_run)
            in_threads(lambda manifest: write_part(self.warehouse, manifest), taken)
            self.done.update((manifest.number, manifest) for manifest in taken)
            self.reused.update(manifest.number for manifest in taken)

    def build(self, call: Callable[[Part], None], slots: BoundedSemaphore, n_threads: int) -> None:
        """Call `call` for every part that is not done, several at a time; it may raise any error."""
        left = [part for part in self.parts if part.number not in self.done]
        if not left:
            return
        threads = DaemonThreads[None](min(n_threads, len(left)), f"databuild parts of {self.ref}")
        try:
            wait([threads.submit(self._build, part, call, slots) for part in left])
        finally:
            threads.close()

    def _build(self, part: Part, call: Callable[[Part], None], slots: BoundedSemaphore) -> None:
        with slots:
            try:
                call(part)
            except DepMiss as miss:
                with self._lock:
                    self.missed[part] = miss
            except BaseException as error:  # User code may raise anything, SystemExit too; it fails this part alone.
                with self._lock:
                    self.failed[part] = error

    def publish(self, part: Part, staged: Staged, inputs: Mapping[Ref, str]) -> PartManifest:
        """Move a part's files into place and write its manifest. Raises `BadResult` for columns that differ from earlier parts'."""
        manifest = PartManifest(
            dataset=asset_of(self.ref),
            ref=self.ref,
            lot_id=self.lot_id,
            instance_uuid=self.uuid,
            job_run=self.job_run,
            attempt=self.attempt,
            state=ManifestState.COMPLETE if staged.files else ManifestState.EMPTY,
            files=staged.files,
            created_at=datetime.now(UTC),
            schema=staged.schema,
            inputs=dict(inputs),
            format=staged.file_format.name,
            number=part.number,
            n_parts=len(self.parts),
            part=part.name,
            split=part.split,
            code_version=self.code_version,
        )
        with self._lock:
            for before in self.done.values():
                if why := _why_columns_differ(manifest, before):
                    raise BadResult(
                        f"Part {part.name} of {self.ref} does not go together with the others: {why}; "
                        "return the same columns for every part."
                    )
            # Later parts have to fit this one; removed below if it cannot be written.
            self.done[part.number] = manifest
        try:
            folder = self.warehouse.instance_dir(manifest.dataset, self.uuid)
            manifest = msgspec.structs.replace(manifest, files=publish_files(staged.folder, folder, staged.files))
            write_part(self.warehouse, manifest)
        except BaseException:
            with self._lock:
                del self.done[part.number]
            raise
        with self._lock:
            self.done[part.number] = manifest
        return manifest

    # As a whole

    @property
    def manifests(self) -> list[PartManifest]:
        """The manifests of the finished parts, in the order of the split."""
        return [self.done[number] for number in sorted(self.done)]

    @property
    def children(self) -> tuple[str, ...]:
        return children_of(self.manifests)

    @property
    def state(self) -> ManifestState:
        return lot_state(self.done[part.number].state if part.number in self.done else None for part in self.parts)

    @property
    def inputs(self) -> dict[Ref, str]:
        """All instances that the parts read."""
        return {**self.declared, **{ref: uuid for part in self.manifests for ref, uuid in part.inputs.items()}}

    @property
    def whole(self) -> Manifest:
        """The files of all finished parts, which are in the warehouse."""
        whole = lot_as_a_whole(self.manifests)
        schemas = [part.schema for part in self.manifests if part.files and part.schema.spark is not None]
        return msgspec.structs.replace(whole, schema=reduce(united_columns, schemas)) if schemas else whole

    def staged(self) -> Staged:
        """All parts as a single result, to publish; its files are read by `whole`."""
        whole = self.whole
        folder = self.warehouse.instance_dir(whole.dataset, whole.instance_uuid)
        return Staged(folder, whole.files, whole.schema, format_named(whole.format))

    @property
    def missing(self) -> tuple[Ref, ...]:
        """The refs that the parts missed."""
        return tuple(dict.fromkeys(ref for miss in self.missed.values() for ref in miss.refs))

    # For people

    def announced(self) -> str:
        """The number of parts, before they are built."""
        kept = f", of which {len(self.reused)} are kept from an earlier attempt" if self.reused else ""
        return f"{self.ref} is built in {counted(len(self.parts), 'part')}{kept}."

    def why_incomplete(self, explain: Callable[[BaseException], str]) -> str:
        """How many parts failed, their names and the first error; or how many missed inputs."""
        n_parts = counted(len(self.parts), "part")
        if not self.failed:
            return f"{len(self.missed)} of {n_parts} missed inputs: {_named(self.missed)}."
        first = next(iter(self.failed.values()))
        return f"{len(self.failed)} of {n_parts} failed: {_named(self.failed)}. First: {explain(first)}"


def _named(parts: Iterable[Part]) -> str:
    return few_of([part.name for part in parts])


def _digest(files: Iterable[str]) -> str:
    return sha256("\0".join(files).encode()).hexdigest()


def _why_columns_differ(part: PartManifest, before: PartManifest) -> str | None:
    """The first difference that no type of a column can have both sides of; None if they go together."""
    if why := why_columns_differ(part, before):
        return why
    one, other = part.schema, before.schema
    if one == other or not part.files or not before.files or one.spark is None or other.spark is None:
        return None
    return why_not_fitting(one, other) or why_not_fitting(other, one)
