"""What exists already becomes live: partitions whose files somebody else has written, listed where they lie.

Everything is looked at before anything is recorded: files that are missing, damaged, counted twice or of other columns
are told in one sentence. Then each partition gets a manifest of its own in our warehouse, which lists the files by their
whole path, and one event makes all of them live (SPEC 4.2). The files stay somebody else's: nothing here, and nothing
that cleans up later, moves or removes what lies outside of a warehouse.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from enum import StrEnum
from itertools import pairwise

from dagster import AssetMaterialization, DagsterInstance

from databuild_dagster.bindings.adoption_errors import (
    CannotRead,
    ColumnsDiffer,
    ListedTwice,
    LiveAlready,
    NoFiles,
    NotAdoptable,
    OwnFiles,
    SaidToBeWrong,
)
from databuild_dagster.bindings.catalog import refs_of_dataset
from databuild_dagster.bindings.describing import version_tags
from databuild_dagster.bindings.file_patterns import FilePattern
from databuild_dagster.bindings.keys import asset_key, ref_of
from databuild_dagster.bindings.readable import neighbour
from databuild_dagster.bindings.registration import dagster_partition, partitions_from
from databuild_dagster.engine import Engine
from databuild_dagster.model.commands import ArriveLots
from databuild_dagster.model.datasets import DatasetKind, DatasetSpec
from databuild_dagster.model.errors import BeingBuilt, UnknownPartition
from databuild_dagster.model.events import Arrival, ManifestFact
from databuild_dagster.model.refs import derive_partition_uuid, partition_key_of
from databuild_dagster.model.states import LEASED, InstanceState
from databuild_dagster.model.wording import few_of
from databuild_dagster.spark import UnreadableColumn, columns_of, in_threads, united_schema, why_not_fitting
from databuild_dagster.store.queries import Canonical
from databuild_dagster.warehouse import (
    FileEntry,
    Manifest,
    ManifestState,
    TableSchema,
    UnreadableFile,
    UriType,
    Warehouse,
    write_manifest,
)
from databuild_dagster.warehouse.formats import WRITTEN
from databuild_dagster.warehouse.outside import OutsideFile, describe_outside, find_files, fingerprint_of

#: Between the first and the last key of a range.
RANGE = ".."
#: Partitions named in one message.
MAX_NAMED = 3


class IfLive(StrEnum):
    """What becomes of a partition that is live with other data than the files that were found."""

    #: Nothing is recorded at all, for the user has to say which of the two is right.
    REFUSE = "refuse"
    #: It stays as it is.
    KEEP = "keep"
    #: The files become its new instance; the one before is history.
    REPLACE = "replace"


@dataclass(frozen=True, slots=True)
class Adopted:
    """One partition that was, or would be, recorded."""

    ref: str
    files: tuple[FileEntry, ...]
    schema: TableSchema
    origin: str

    @property
    def rows(self) -> int:
        return sum(file.rows for file in self.files)

    @property
    def bytes(self) -> int:
        return sum(file.bytes for file in self.files)


@dataclass(slots=True)
class Adoption:
    """What became of every partition that was asked for."""

    recorded: list[Adopted] = field(default_factory=list)
    #: Live from these very files before.
    same: list[str] = field(default_factory=list)
    #: Live with other data, and left so.
    kept: list[str] = field(default_factory=list)
    without_files: list[str] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Adopter:
    """Adopts partitions of one dataset."""

    engine: Engine
    instance: DagsterInstance
    dataset: DatasetSpec
    warehouse: Warehouse

    def adopt(
        self,
        pattern: str,
        partitions: Sequence[str] = (),
        *,
        if_live: IfLive = IfLive.REFUSE,
        allow_schema_change: bool = False,
        dry_run: bool = False,
    ) -> Adoption:
        """Record partitions as live from files that match, all or none; those that are named, or all that have files.

        Raises `NotAdoptable`, `BadFilePattern`, `UnknownPartition`, `NoFiles`, `ListedTwice`, `OwnFiles`, `CannotRead`,
        `ColumnsDiffer`, `SchemasDiffer`, `LiveAlready`, `SaidToBeWrong`, `BeingBuilt`, `CanonicalMoved`, and what
        listing and reading the files raises, with nothing recorded.
        """
        if self.dataset.kind is not DatasetKind.OURS:
            what = (
                "a plain Dagster asset" if self.dataset.kind is DatasetKind.PLAIN else "declared, and built elsewhere"
            )
            raise NotAdoptable(asset=self.dataset.asset, what=what)
        files = FilePattern(pattern, self.dataset.asset, partitions_from(self.dataset.partitions))
        refs = self._named(partitions) if partitions else refs_of_dataset(self.dataset, self.instance)
        adoption = Adoption()
        found = self._found(files, refs, adoption, all_or_none=bool(partitions))
        described = self._described(found, files, allow_schema_change=allow_schema_change)
        canonical = self.engine.queries.canonical([each.ref for each in described])
        for each in described:
            self._sort(each, canonical[each.ref], if_live, adoption)
        if adoption.kept and if_live is IfLive.REFUSE:
            raise LiveAlready(named=few_of(adoption.kept, MAX_NAMED), verb="is" if len(adoption.kept) == 1 else "are")
        if not dry_run:
            uuids = self._record(adoption.recorded, canonical) if adoption.recorded else {}
            self._show(adoption, uuids)
        return adoption

    # Which partitions, which files

    def _named(self, partitions: Sequence[str]) -> list[str]:
        """The refs of keys and of ranges `FIRST..LAST`, each once. Raises `UnknownPartition`."""
        asset = self.dataset.asset
        refs: dict[str, None] = {}
        for named in partitions:
            first, dots, last = named.partition(RANGE)
            if not dots or self._why_not(named) is None:
                ends = [named]
            else:
                ends = [first, last]
            for key in ends:
                if why := self._why_not(key):
                    raise UnknownPartition(ref=f"{asset}@{key}", why=why, asset=asset)
            if len(ends) == 1:
                refs[ref_of(asset, named)] = None
                continue
            existing = refs_of_dataset(self.dataset, self.instance)
            at, until = (existing.index(ref_of(asset, key)) for key in ends)
            if at > until:
                why = f"the range {named} ends before it begins."
                raise UnknownPartition(ref=f"{asset}@{last}", why=why, asset=asset)
            refs.update(dict.fromkeys(existing[at : until + 1]))
        return list(refs)

    def _why_not(self, key: str) -> str | None:
        return self.engine.catalog.why_not(self.dataset, key)

    def _found(
        self, pattern: FilePattern, refs: Sequence[str], adoption: Adoption, *, all_or_none: bool
    ) -> dict[str, list[tuple[str, int]]]:
        patterns = {ref: pattern.of(partition_key_of(ref)) for ref in refs}
        listed = in_threads(lambda ref: [file for each in patterns[ref] for file in find_files(each)], list(refs))
        found = dict(zip(refs, (sorted(set(files)) for files in listed), strict=True))
        adoption.without_files = [ref for ref, files in found.items() if not files]
        if adoption.without_files and (all_or_none or len(adoption.without_files) == len(refs)):
            first = adoption.without_files[0]
            raise NoFiles(named=few_of(adoption.without_files, MAX_NAMED), pattern=patterns[first][0])
        owner: dict[str, str] = {}
        for ref, files in found.items():
            for path, _ in files:
                if (other := owner.setdefault(path, ref)) != ref:
                    raise ListedTwice(path=path, one=other, other=ref)
                if path.startswith(f"{self.warehouse.root}/"):
                    raise OwnFiles(path=path, warehouse=self.warehouse.root)
        return {ref: files for ref, files in found.items() if files}

    # What they hold

    def _described(
        self, found: Mapping[str, list[tuple[str, int]]], pattern: FilePattern, *, allow_schema_change: bool
    ) -> list[Adopted]:
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
            where = pattern.of(partition_key_of(ref))[0]
            origin = f"adopted from {where} ({_count(len(entries))}, {fingerprint_of(entries)})"
            described.append(Adopted(ref, entries, self._columns(ref, files), origin))
        if allow_schema_change:
            # Not even then what no reader could put together.
            united_schema([self._manifest(each, "", "", datetime.now(UTC)) for each in described])
        else:
            self._check_columns(described)
        return described

    def _columns(self, ref: str, files: Sequence[OutsideFile]) -> TableSchema:
        """Those that all files of a partition have."""
        first = None
        for file in files:
            path = file.entry.uri
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

    def _check_columns(self, described: Sequence[Adopted]) -> None:
        """As for what is built: later partitions may have more columns, or wider ones (`spark.check_schema`)."""
        allow = "--allow-schema-change takes it as it is"
        for before, each in pairwise(described):
            if why := why_not_fitting(each.schema, before.schema):
                raise ColumnsDiffer(path=each.files[0].uri, ref=each.ref, why=why, other=before.ref, allow=allow)
        present = neighbour(self.engine.queries, self.dataset.asset)
        if present is None:
            return
        for each in described:
            # What is adopted may be older or younger than what is there.
            why = why_not_fitting(each.schema, present.schema)
            if why and why_not_fitting(present.schema, each.schema):
                raise ColumnsDiffer(path=each.files[0].uri, ref=each.ref, why=why, other=present.ref, allow=allow)

    # What becomes of them

    def _sort(self, each: Adopted, now: Canonical, if_live: IfLive, adoption: Adoption) -> None:
        """What was live as a plain Dagster asset has no data of ours, and is what most people adopt."""
        is_same = now.origin is not None and now.origin.startswith(each.origin)
        if now.state in LEASED:
            raise BeingBuilt(ref=each.ref, job_run=now.job_run)
        if is_same and now.state is InstanceState.LIVE:
            adoption.same.append(each.ref)
        elif is_same:
            raise SaidToBeWrong(ref=each.ref)
        elif now.state is InstanceState.LIVE and now.manifest_uri is not None and if_live is not IfLive.REPLACE:
            adoption.kept.append(each.ref)
        else:
            adoption.recorded.append(each)

    def _record(self, adopted: Sequence[Adopted], canonical: Mapping[str, Canonical]) -> dict[str, str]:
        """Manifests, then the event; the uuid of each ref. Raises what the event is refused with."""
        job_run_of = {each.ref: self.engine.new_id() for each in adopted}
        uuids = {ref: derive_partition_uuid(job_run, ref) for ref, job_run in job_run_of.items()}
        at = datetime.now(UTC)
        manifests = {each.ref: self._manifest(each, uuids[each.ref], job_run_of[each.ref], at) for each in adopted}
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
                    for each in adopted
                ),
                seen={each.ref: canonical[each.ref].uuid for each in adopted},
            )
            self.engine.handle(command, actor="user")
        except Exception:
            # Nobody was told of them; these folders hold nothing but the manifests.
            for uuid in uuids.values():
                self.warehouse.remove_instance(self.dataset.asset, uuid)
            raise
        return uuids

    def _manifest(self, each: Adopted, uuid: str, job_run: str, at: datetime) -> Manifest:
        files = tuple(file for file in each.files if file.rows)
        return Manifest(
            dataset=self.dataset.asset,
            ref=each.ref,
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

    def _show(self, adoption: Adoption, uuids: Mapping[str, str]) -> None:
        """Green in Dagster what is live here; also what a command that was interrupted has left out."""
        key = asset_key(self.dataset.asset)
        adopted = {each.ref: each for each in adoption.recorded}
        unseen = []
        if adoption.same:
            # One that has partitions cannot be materialized without.
            known = self.instance.get_materialized_partitions(key) if self.dataset.partitions else set()
            if self.dataset.partitions or self.instance.get_latest_materialization_event(key) is None:
                unseen = [ref for ref in adoption.same if partition_key_of(ref) not in known]
        left_out = self.engine.queries.canonical(unseen)
        for ref in [*adopted, *unseen]:
            uuid = uuids.get(ref) or left_out[ref].uuid
            assert uuid is not None, "it is live"
            origin = adopted[ref].origin if ref in adopted else left_out[ref].origin
            rows = adopted[ref].rows if ref in adopted else left_out[ref].rows
            partition = dagster_partition(self.dataset.partitions, partition_key_of(ref))
            self.instance.report_runless_asset_event(
                AssetMaterialization(
                    asset_key=key,
                    partition=partition,
                    description=origin,
                    metadata={"databuild/instance": uuid, "dagster/row_count": rows},
                    tags=version_tags(uuid, partition),
                )
            )


def _again(each: Adopted, now: Canonical) -> str:
    """An origin that is known is taken for the same arrival; after a build or taint in between it is another."""
    if now.known_origin is not None and now.known_origin.startswith(each.origin) and now.uuid is not None:
        return f"{each.origin} instead of {now.uuid}"
    return each.origin


def _fact(manifest: Manifest, uri: str) -> ManifestFact:
    return ManifestFact(
        state=manifest.state.value, uri=uri, files=len(manifest.files), rows=manifest.rows, bytes=manifest.bytes
    )


def _count(n: int) -> str:
    return "1 file" if n == 1 else f"{n} files"
