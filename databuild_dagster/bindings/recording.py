"""Files that somebody else has written become live instances, listed where they lie (SPEC 4.2, 10.2).

First everything is looked at: what cannot be read, or does not fit together, is told in one sentence. Then each ref gets
a manifest of its own in our warehouse, which lists the files by their whole path, and one event makes all of them live.
The files stay somebody else's: nothing here, and nothing that cleans up later, moves or removes what lies outside of a
warehouse. Which files belong to which ref, the caller knows.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import pairwise

from dagster import AssetMaterialization, DagsterInstance

from databuild_dagster.bindings.adoption_errors import CannotRead, ColumnsDiffer
from databuild_dagster.bindings.describing import version_tags
from databuild_dagster.bindings.frames import NO_COLUMNS
from databuild_dagster.bindings.keys import asset_key
from databuild_dagster.bindings.lot_keys import lot_id_of
from databuild_dagster.bindings.readable import neighbour
from databuild_dagster.bindings.registration import dagster_partition
from databuild_dagster.engine import Engine
from databuild_dagster.model.commands import ArriveLots
from databuild_dagster.model.datasets import DatasetSpec
from databuild_dagster.model.errors import Conflict, Refused
from databuild_dagster.model.events import Arrival, ManifestFact
from databuild_dagster.model.refs import derive_partition_uuid, partition_key_of
from databuild_dagster.spark import UnreadableColumn, columns_of, in_threads, united_schema, why_not_fitting
from databuild_dagster.store.queries import Canonical
from databuild_dagster.warehouse import (
    DiskTrouble,
    FileEntry,
    Manifest,
    ManifestState,
    StorageTrouble,
    TableSchema,
    UnreadableFile,
    UriType,
    Warehouse,
    write_manifest,
)
from databuild_dagster.warehouse.formats import WRITTEN
from databuild_dagster.warehouse.outside import OutsideFile, describe_outside

_ALLOW = "--allow-schema-change takes it as it is"


@dataclass(frozen=True, slots=True)
class Outside:
    """One ref, and the files that are, or would be, a new instance of it."""

    ref: str
    files: tuple[FileEntry, ...]
    schema: TableSchema
    #: Where they are from; another text for other files.
    origin: str

    @property
    def rows(self) -> int:
        return sum(file.rows for file in self.files)

    @property
    def bytes(self) -> int:
        return sum(file.bytes for file in self.files)


@dataclass(frozen=True, slots=True)
class Recorder:
    """Records refs of one dataset; `actor` is who the log says it was."""

    engine: Engine
    instance: DagsterInstance
    dataset: DatasetSpec
    warehouse: Warehouse
    actor: str

    # What files hold

    def described(
        self, found: Mapping[str, Sequence[tuple[str, int]]], origin: Callable[[str, Sequence[FileEntry]], str]
    ) -> list[Outside]:
        """Each ref with its files, given by path and bytes. Raises `CannotRead`, `ColumnsDiffer`."""
        ref_of_file = {path: ref for ref, files in found.items() for path, _ in files}
        try:
            facts = describe_outside([file for files in found.values() for file in files])
        except UnreadableFile as error:
            path = error.facts["path"]
            raise CannotRead(path=path, ref=ref_of_file[path], why=error.facts["why"]) from error
        of_ref: dict[str, list[OutsideFile]] = {ref: [] for ref in found}
        for fact in facts:
            of_ref[ref_of_file[fact.entry.uri]].append(fact)
        described = []
        for ref, files in of_ref.items():
            entries = tuple(file.entry for file in files)
            described.append(Outside(ref, entries, _columns(ref, files), origin(ref, entries)))
        return described

    def check_readable_together(self, described: Sequence[Outside]) -> None:
        """Even where columns may differ, a reader has to be able to put all of them together. Raises `SchemasDiffer`."""
        united_schema([self._manifest(each, "", "", datetime.now(UTC)) for each in described])

    def check_columns(self, described: Sequence[Outside]) -> None:
        """As for what is built: later partitions may have more columns, or wider ones (`spark.check_schema`).

        Raises `ColumnsDiffer`.
        """
        for before, each in pairwise(described):
            if why := why_not_fitting(each.schema, before.schema):
                raise ColumnsDiffer(path=each.files[0].uri, ref=each.ref, why=why, other=before.ref, allow=_ALLOW)
        present = neighbour(self.engine.queries, self.dataset.asset)
        if present is not None:
            for each in described:
                self.check_fits(each, present.ref, present.schema)

    def check_fits(self, each: Outside, other: str, schema: TableSchema) -> None:
        """What comes from outside may be older or younger than what is there. Raises `ColumnsDiffer`."""
        why = why_not_fitting(each.schema, schema)
        if why and why_not_fitting(schema, each.schema):
            raise ColumnsDiffer(path=each.files[0].uri, ref=each.ref, why=why, other=other, allow=_ALLOW)

    def empty(self, ref: str, origin: str) -> Outside:
        """No rows, with the columns that the dataset has had last (SPEC 10.3)."""
        present = neighbour(self.engine.queries, self.dataset.asset)
        return Outside(ref, (), NO_COLUMNS if present is None else present.schema, origin)

    # Manifests, then the event

    def record(self, outside: Sequence[Outside], canonical: Mapping[str, Canonical]) -> dict[str, str]:
        """The uuid of each ref; `canonical` is what was decided about. Raises what the event is refused with."""
        job_run_of = {each.ref: self.engine.new_id() for each in outside}
        uuids = {ref: derive_partition_uuid(job_run, ref) for ref, job_run in job_run_of.items()}
        at = datetime.now(UTC)
        manifests = {each.ref: self._manifest(each, uuids[each.ref], job_run_of[each.ref], at) for each in outside}
        try:
            uris = dict(
                zip(
                    manifests,
                    in_threads(lambda manifest: write_manifest(self.warehouse, manifest), list(manifests.values())),
                    strict=True,
                )
            )
            command = ArriveLots(
                arrivals=tuple(
                    Arrival(
                        job_run_id=job_run_of[each.ref],
                        ref=each.ref,
                        origin=_again(each, canonical[each.ref]),
                        manifest=_fact(manifests[each.ref], uris[each.ref]),
                    )
                    for each in outside
                ),
                seen={each.ref: canonical[each.ref].uuid for each in outside},
            )
            self.engine.handle(command, actor=self.actor)
        except (Refused, Conflict, DiskTrouble, StorageTrouble):
            # Nobody was told of them; these folders hold nothing but the manifests. After any other error somebody may
            # have been: `clean` tells.
            for uuid in uuids.values():
                self.warehouse.remove_instance(self.dataset.asset, uuid)
            raise
        return uuids

    def _manifest(self, each: Outside, uuid: str, job_run: str, at: datetime) -> Manifest:
        files = tuple(file for file in each.files if file.rows)
        return Manifest(
            dataset=self.dataset.asset,
            ref=each.ref,
            lot_id=lot_id_of(self.dataset, partition_key_of(each.ref)),
            instance_uuid=uuid,
            job_run=job_run,
            attempt=1,
            state=ManifestState.COMPLETE if files else ManifestState.EMPTY,
            uri_type=UriType.IDENTIFIER,
            files=files,
            created_at=at,
            schema=each.schema,
            comment=each.origin,
            format=WRITTEN.name,
        )

    # What Dagster shows

    def show(self, outside: Sequence[Outside], uuids: Mapping[str, str], live_before: Sequence[str] = ()) -> None:
        """Green in Dagster what is live here; of what was live before, what an interrupted command has left out."""
        now = {each.ref: each for each in outside}
        unseen = self.not_shown(live_before)
        left_out = self.engine.queries.canonical(unseen)
        for ref in [*now, *unseen]:
            uuid = uuids.get(ref) or left_out[ref].uuid
            assert uuid is not None, "it is live"
            origin = now[ref].origin if ref in now else left_out[ref].origin
            rows = now[ref].rows if ref in now else left_out[ref].rows
            partition = dagster_partition(self.dataset.partitions, partition_key_of(ref))
            self.instance.report_runless_asset_event(
                AssetMaterialization(
                    asset_key=asset_key(self.dataset.asset),
                    partition=partition,
                    description=origin,
                    metadata={"databuild/instance": uuid, "dagster/row_count": rows},
                    tags=version_tags(uuid, partition),
                )
            )

    def not_shown(self, refs: Sequence[str]) -> list[str]:
        """Those of which Dagster knows no materialization at all."""
        if not refs:
            return []
        key = asset_key(self.dataset.asset)
        if not self.dataset.partitions:
            return list(refs) if self.instance.get_latest_materialization_event(key) is None else []
        known = self.instance.get_materialized_partitions(key)
        return [ref for ref in refs if partition_key_of(ref) not in known]


def counted(n: int) -> str:
    return "1 file" if n == 1 else f"{n} files"


def _columns(ref: str, files: Sequence[OutsideFile]) -> TableSchema:
    """Those that all files of a partition have."""
    first = None
    for file in files:
        path = file.entry.uri
        if first is not None and file.schema.equals(files[0].schema, check_metadata=True):
            continue
        try:
            schema = columns_of(file.schema)
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
    assert first is not None, "a partition without files is not described"
    return first


def _again(each: Outside, now: Canonical) -> str:
    """An origin that is known is taken for the same arrival; after a build or taint in between it is another."""
    if now.known_origin is not None and now.known_origin.startswith(each.origin) and now.uuid is not None:
        return f"{each.origin} instead of {now.uuid}"
    return each.origin


def _fact(manifest: Manifest, uri: str) -> ManifestFact:
    return ManifestFact(
        state=manifest.state.value, uri=uri, files=len(manifest.files), rows=manifest.rows, bytes=manifest.bytes
    )
