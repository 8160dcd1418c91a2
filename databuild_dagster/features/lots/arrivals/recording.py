"""Files that other programs have written become live instances, listed where they are (rules 4.2, 10.2).

First everything is checked; files that are unreadable or do not fit together are refused in a sentence. Then each ref
gets a manifest in our warehouse, which lists the files by their whole path, and a single event makes all refs live. The
files are not databuild's: no later clean-up moves or removes them. The caller decides which files belong to which ref.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from itertools import compress, islice, pairwise
from typing import TYPE_CHECKING
from unicodedata import category

import msgspec
from dagster import DagsterInstance

from databuild_dagster.bindings.display.materialization import LiveRef, report_live, shown_keys
from databuild_dagster.bindings.reading.frames import NO_COLUMNS
from databuild_dagster.bindings.registry.lot_partitions import lot_id_of
from databuild_dagster.data.arrival_ids import arrival_id, is_the_same_arrival
from databuild_dagster.data.read_plan import neighbour
from databuild_dagster.engine.engine import Engine
from databuild_dagster.engine.holders import this_user
from databuild_dagster.model.commands import ArriveLots
from databuild_dagster.model.datasets import DatasetSpec, TableFormat, TableSpec
from databuild_dagster.model.errors import CanonicalMoved, Conflict, InstanceExists, Refused
from databuild_dagster.model.events import Arrival
from databuild_dagster.model.refs import Ref, derive_partition_uuid, partition_key_of
from databuild_dagster.model.wording import utf8
from databuild_dagster.spark.errors import UnreadableColumn
from databuild_dagster.spark.schemas import columns_of, united_columns, united_schema, why_not_fitting
from databuild_dagster.store.queries.canonical import Canonical
from databuild_dagster.warehouse.errors import DiskTrouble, ManifestConflict, StorageTrouble, UnreadableFile
from databuild_dagster.warehouse.files import OutsideFile, describe_each, is_no_url
from databuild_dagster.warehouse.formats import WRITTEN
from databuild_dagster.warehouse.layout import Warehouse
from databuild_dagster.warehouse.manifest import (
    FileEntry,
    Manifest,
    ManifestState,
    TableSchema,
    UriType,
    manifest_fact,
    read_manifest,
    write_manifests,
)
from databuild_dagster.warehouse.storage import protocol_of

if TYPE_CHECKING:
    import pyarrow as pa


class NotABoundary(Refused):
    """{asset} is {what}, so no lot of it can arrive."""

    hint = "Declare it: build_definitions([databuild_boundary({asset!r}, partitions_def=…), …])."


class NoSuchLot(Refused):
    """{lot!r} is no lot of {asset}: {why}"""

    hint = "Give one of its partition keys, or a lot id such as 20230227PT1H023."


class NothingGiven(Refused):
    """No files are given for {ref}."""

    hint = "Name them, or give --empty if there are none on purpose."


class FilesAndEmpty(Refused):
    """--empty is given for {ref}, and files are given, too."""

    hint = "Leave one of the two out."


class NoSuchFile(Refused):
    """There is no data file {path}."""

    hint = "Name a file that exists; hidden files, and names that begin with _, are no data."


class HasDataAlready(Refused):
    """{ref} has arrived with {files}, so it is not empty."""

    hint = "Give --replace to make it empty all the same."


class SaidWrong(Refused):
    """{ref} is tainted, and {path} is among its files."""

    hint = "`databuild untaint` removes the taint; or write the file again, or remove it."


class NoLandingFolder(Refused):
    """The landing folder {folder} of {asset} does not exist."""

    hint = "Create it, or correct files=… of the boundary."


class NotAdoptable(Refused):
    """{asset} is {what}, so its partitions cannot be adopted."""

    hint = "{instead}"


class NoFiles(Refused):
    """No files for {named}: none match {pattern}."""

    hint = "Correct the pattern, or name the partitions that have files with --partitions."


class ListedTwice(Refused):
    """{path} would belong to {one} and to {other}."""

    hint = "Narrow the pattern: the files of two partitions lie apart."


class OwnFiles(Refused):
    """{path} lies in the warehouse {warehouse}, whose files are databuild's own."""

    hint = "Adopt files of other programs; `databuild show REF` shows the files of a built partition."


class CannotRead(Refused):
    """{path} cannot be a file of {ref}: {why}."""

    hint = "Fix or remove it, or name files or partitions that leave it out."


class ColumnsDiffer(Refused):
    """{path}, for {ref}, does not fit: {why}, unlike {other}."""

    hint = "Write it again with the same columns, or leave that partition out; {allow}."


class LiveAlready(Refused):
    """{named} {verb} live already with other data."""

    hint = "--live keep leaves it as it is; --live replace makes these files its new instance."


class SaidToBeWrong(Refused):
    """{ref} was adopted from these files, and tainted since."""

    hint = "`databuild show {ref}` names the taint, `databuild untaint` removes it; or correct the files first."


_ALLOW = "--allow-schema-change takes it as it is"


@dataclass(frozen=True, slots=True)
class OutsideInstance:
    """A ref, and the outside files of its new instance."""

    ref: Ref
    files: tuple[FileEntry, ...]
    schema: TableSchema
    #: The origin of the files, a different text for different files.
    origin: str
    #: Number of files that the instance before lists too.
    n_kept: int = 0

    @property
    def rows(self) -> int:
        return sum(file.rows for file in self.files)

    @property
    def bytes(self) -> int:
        return sum(file.bytes for file in self.files)


@dataclass(frozen=True, slots=True)
class Recorder:
    """Records refs of a dataset; the log names `actor` for it."""

    engine: Engine
    instance: DagsterInstance
    dataset: DatasetSpec
    warehouse: Warehouse
    actor: str = field(default_factory=this_user)

    # Contents of files

    def described(
        self, found: Mapping[Ref, Sequence[tuple[str, int]]], origin: Callable[[Ref, Sequence[FileEntry]], str]
    ) -> list[OutsideInstance]:
        """Each ref with its files, given by path and bytes. Raises `CannotRead`, `ColumnsDiffer`."""
        described = []
        for outside in self.described_each(found, origin).values():
            if isinstance(outside, Refused):
                raise outside
            described.append(outside)
        return described

    def described_each(
        self, found: Mapping[Ref, Sequence[tuple[str, int]]], origin: Callable[[Ref, Sequence[FileEntry]], str]
    ) -> dict[Ref, OutsideInstance | CannotRead | ColumnsDiffer]:
        """The same, with the refusal of a ref in place of its result."""
        described: dict[Ref, OutsideInstance | CannotRead | ColumnsDiffer] = {}
        for ref, files in found.items():
            if (
                misnamed := next(((path, why) for path, _ in files if (why := self._why_misnamed(path))), None)
            ) is not None:
                described[ref] = CannotRead(path=utf8(misnamed[0]), ref=ref, why=misnamed[1])
        facts = iter(describe_each([file for ref, files in found.items() if ref not in described for file in files]))
        columns_of_schema = _remembering(columns_of)
        for ref, files in found.items():
            if ref in described:
                continue
            try:
                of_ref = [_readable(ref, fact) for fact in list(islice(facts, len(files)))]
            except CannotRead as refused:
                described[ref] = refused
                continue
            entries = tuple(file.entry for file in of_ref)
            try:
                described[ref] = OutsideInstance(
                    ref, entries, _columns(ref, of_ref, columns_of_schema), origin(ref, entries)
                )
            except (CannotRead, ColumnsDiffer) as refused:
                described[ref] = refused
        return described

    def _why_misnamed(self, path: str) -> str | None:
        """Why some reader cannot open a file of this name; for Spark, a file on a disk gets a link (`plain_names`)."""
        if utf8(path) != path:
            return "its name is not UTF-8"
        if (
            isinstance(self.dataset.table, TableSpec)
            and self.dataset.table.format is TableFormat.ICEBERG
            and is_no_url(path)
        ):
            return "readers of its Iceberg table open no name with #, ? or a control character"
        if protocol_of(path) is None:
            return None
        names = path.partition("://")[2].split("/")
        if not {"", ".", ".."}.isdisjoint(names) or any(category(character) == "Cc" for character in path):
            return (
                "Sail opens no object with a control character in its name, or with a part of it that is empty, . or .."
            )
        return None

    def check_readable_together(self, described: Sequence[OutsideInstance]) -> None:
        """Columns may differ, but a reader has to be able to unite them. Raises `SchemasDiffer`."""
        united_schema([self._manifest(outside, "", "", datetime.now(UTC)) for outside in described])

    def check_columns(self, described: Sequence[OutsideInstance]) -> None:
        """As for built instances: later partitions may have more or wider columns (`spark.check_schema`).

        Raises `ColumnsDiffer`.
        """
        for before, after in pairwise(described):
            if why := why_not_fitting(after.schema, before.schema):
                raise ColumnsDiffer(path=after.files[0].uri, ref=after.ref, why=why, other=before.ref, allow=_ALLOW)
        present = neighbour(self.engine.queries, self.dataset.asset)
        if present is not None:
            for outside in described:
                self.check_fits(outside, present.ref, present.schema)

    def check_fits(self, outside: OutsideInstance, other: str, schema: TableSchema) -> None:
        """Outside files may be older or younger than the present instance. Raises `ColumnsDiffer`."""
        if outside.schema == schema:
            return
        why = why_not_fitting(outside.schema, schema)
        if why and why_not_fitting(schema, outside.schema):
            raise ColumnsDiffer(path=outside.files[0].uri, ref=outside.ref, why=why, other=other, allow=_ALLOW)

    def empty(self, ref: Ref, origin: str) -> OutsideInstance:
        """No rows, with the dataset's newest columns (rule 10.3)."""
        present = neighbour(self.engine.queries, self.dataset.asset)
        return OutsideInstance(ref, (), NO_COLUMNS if present is None else present.schema, origin)

    # Manifests, then the event

    def record(self, outside: Sequence[OutsideInstance], canonical: Mapping[Ref, Canonical]) -> dict[Ref, str]:
        """The uuid of each ref; `canonical` are the instances that the caller's decision was based on. Raises refusals
        of the event.

        A manifest that exists already is of a process that ended before its event, or that is recording right now.
        """
        at, began = datetime.now(UTC), self.engine.queries.events.beginning()
        manifests = [self._identified(one, canonical[one.ref], began, at) for one in outside]
        created: list[Manifest] = []
        try:
            taken_up = self._written(manifests, created)
            self.engine.handle(self._command(outside, canonical, manifests), actor=self.actor)
        except (Refused, Conflict, DiskTrouble, StorageTrouble) as error:
            # These folders hold nothing but manifests that no event names. After any other error an event may name
            # them, and `databuild gc` decides.
            named = self.engine.queries.instances.kept(manifest.instance_uuid for manifest in created)
            for manifest in created:
                if manifest.instance_uuid not in named:
                    self.warehouse.remove_instance(self.dataset.asset, manifest.instance_uuid)
            if isinstance(error, InstanceExists):
                # A faster process has recorded the same files.
                raise CanonicalMoved(ref=error.facts["ref"]) from error
            raise
        # Their writer may have been refused, and have removed them, before this event was visible.
        write_manifests(self.warehouse, taken_up)
        return {manifest.ref: manifest.instance_uuid for manifest in manifests}

    def _identified(
        self, outside: OutsideInstance, seen: Canonical, began: tuple[float, str], at: datetime
    ) -> Manifest:
        manifest = self._manifest(outside, "", "", at)
        job_run = arrival_id(began, manifest, seen.uuid)
        uuid = derive_partition_uuid(job_run, outside.ref)
        return msgspec.structs.replace(manifest, job_run=job_run, instance_uuid=uuid)

    def _written(self, manifests: Sequence[Manifest], created: list[Manifest]) -> list[Manifest]:
        """Write manifests; returns manifests that existed already. Raises `ManifestConflict` for one with different contents."""
        were_absent = write_manifests(self.warehouse, manifests)
        created += compress(manifests, were_absent)
        there = [manifest for manifest, was_absent in zip(manifests, were_absent, strict=True) if not was_absent]
        for manifest in there:
            found = read_manifest(self.warehouse, self.dataset.asset, manifest.instance_uuid)
            if not is_the_same_arrival(found, manifest):
                path = self.warehouse.manifest_path(self.dataset.asset, manifest.instance_uuid)
                raise ManifestConflict(path=path, entity=path)
        return there

    def _command(
        self, outside: Sequence[OutsideInstance], canonical: Mapping[Ref, Canonical], manifests: Sequence[Manifest]
    ) -> ArriveLots:
        arrivals = (
            Arrival(
                job_run_id=manifest.job_run,
                ref=one.ref,
                origin=_again(one, canonical[one.ref]),
                manifest=manifest_fact(
                    manifest, self.warehouse.manifest_path(self.dataset.asset, manifest.instance_uuid)
                ),
            )
            for one, manifest in zip(outside, manifests, strict=True)
        )
        return ArriveLots(arrivals=tuple(arrivals), seen={one.ref: canonical[one.ref].uuid for one in outside})

    def _manifest(self, outside: OutsideInstance, uuid: str, job_run: str, at: datetime) -> Manifest:
        files = tuple(file for file in outside.files if file.rows)
        return Manifest(
            dataset=self.dataset.asset,
            ref=outside.ref,
            lot_id=lot_id_of(self.dataset, partition_key_of(outside.ref)),
            instance_uuid=uuid,
            job_run=job_run,
            attempt=1,
            state=ManifestState.COMPLETE if files else ManifestState.EMPTY,
            uri_type=UriType.IDENTIFIER,
            files=files,
            created_at=at,
            schema=outside.schema,
            comment=outside.origin,
            format=WRITTEN.name,
        )

    # Dagster

    def show(
        self, outside: Sequence[OutsideInstance], uuids: Mapping[Ref, str], live_before: Sequence[Ref] = ()
    ) -> None:
        """Materialize in Dagster what is live here, and refs of `live_before` that an interrupted command did not show."""
        now = {one.ref: one for one in outside}
        unseen = self.not_shown(live_before)
        left_out = self.engine.queries.canonical.of(unseen)
        live = []
        for ref in [*now, *unseen]:
            uuid = uuids.get(ref) or left_out[ref].uuid
            assert uuid is not None, "it is live"
            origin = now[ref].origin if ref in now else left_out[ref].origin
            rows = now[ref].rows if ref in now else left_out[ref].rows
            live.append(LiveRef(ref, uuid, rows, origin))
        report_live(self.instance, [self.dataset], live)

    def not_shown(self, refs: Sequence[Ref]) -> list[Ref]:
        """The refs without any materialization in Dagster."""
        if not refs:
            return []
        shown = shown_keys(self.instance, self.dataset.asset, map(partition_key_of, refs))
        return [ref for ref in refs if partition_key_of(ref) not in shown]


def check_not_own(paths: Iterable[str], warehouse: Warehouse) -> None:
    """Raises `OwnFiles`."""
    for path in paths:
        if path.startswith(f"{warehouse.root}/"):
            raise OwnFiles(path=path, warehouse=warehouse.root)


def _readable(ref: Ref, fact: OutsideFile | UnreadableFile) -> OutsideFile:
    """Raises `CannotRead`."""
    if isinstance(fact, UnreadableFile):
        raise CannotRead(path=fact.facts["path"], ref=ref, why=fact.facts["why"]) from fact
    return fact


def _remembering(columns: Callable[[pa.Schema], TableSchema]) -> Callable[[pa.Schema], TableSchema]:
    """The same function, called once for consecutive files with the same schema, as most have."""
    last: list[tuple[pa.Schema, TableSchema]] = []

    def answer(schema: pa.Schema) -> TableSchema:
        if not last or not last[0][0].equals(schema, check_metadata=True):
            last[:] = [(schema, columns(schema))]
        return last[0][1]

    return answer


def _columns(
    ref: Ref, files: Sequence[OutsideFile], columns_of_schema: Callable[[pa.Schema], TableSchema]
) -> TableSchema:
    """The columns that all files of a partition have."""
    first: TableSchema | None = None
    for file in files:
        path = file.entry.uri
        if first is not None and file.schema.equals(files[0].schema, check_metadata=True):
            continue
        try:
            schema = columns_of_schema(file.schema)
        except UnreadableColumn as error:
            raise CannotRead(path=path, ref=ref, why=error.message.rstrip(".")) from error
        if first is None:
            first = schema
        elif why := why_not_fitting(schema, first) or why_not_fitting(first, schema):
            raise ColumnsDiffer(
                path=path,
                ref=ref,
                why=why if why_not_fitting(schema, first) else f"it has more, or wider, columns ({why})",
                other=files[0].entry.uri,
                allow="the files of one partition have one set of columns",
            )
        else:
            first = united_columns(first, schema)
    assert first is not None, "a partition without files is not described"
    return first


def _again(outside: OutsideInstance, now: Canonical) -> str:
    """The log takes a known origin for the same arrival; after a build or a taint in between the text has to differ."""
    if now.known_origin is not None and now.known_origin.startswith(outside.origin) and now.uuid is not None:
        return f"{outside.origin} instead of {now.uuid}"
    return outside.origin
