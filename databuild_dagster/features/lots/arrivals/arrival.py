"""Files of a lot become its next instance, for `databuild lot arrive` and the watcher alike.

A lot grows: new files are added to its files. A file is new if no instance of the lot lists it with the same
place, size and checksum, and if it is no copy, byte for byte, of a file of the lot. A listed file that
was removed or rewritten is replaced by the present file. Files of a tainted instance do not return by themselves.
"""

import glob
import hashlib
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from databuild_dagster.bindings.registry.lot_partitions import lot_keys_if_any
from databuild_dagster.engine.engine import Engine
from databuild_dagster.features.lots.arrivals.recording import (
    ColumnsDiffer,
    FilesAndEmpty,
    HasDataAlready,
    NoSuchFile,
    NoSuchLot,
    NotABoundary,
    NothingGiven,
    OutsideInstance,
    Recorder,
    SaidWrong,
    check_not_own,
)
from databuild_dagster.model.datasets import DatasetKind
from databuild_dagster.model.lots import Lot
from databuild_dagster.model.refs import Ref, make_ref
from databuild_dagster.model.states import InstanceState
from databuild_dagster.model.wording import counted
from databuild_dagster.spark.schemas import united_columns, why_not_fitting
from databuild_dagster.store.queries.canonical import Canonical
from databuild_dagster.warehouse.errors import ManifestMissing
from databuild_dagster.warehouse.files import checksum_of_other, find_files, fingerprint_of, whole_pattern
from databuild_dagster.warehouse.layout import Warehouse
from databuild_dagster.warehouse.manifest import FileEntry, Manifest, ManifestState, read_manifest
from databuild_dagster.warehouse.storage import Storage, protocol_of, storage_at

#: Bytes read at once when two files are compared.
CHUNK_BYTES = 1 << 20
_WHAT = {
    DatasetKind.OURS: "built by its own function",
    DatasetKind.PLAIN: "a plain Dagster asset",
    DatasetKind.SOURCE: "declared, and not as a boundary for files from outside",
}


@dataclass(slots=True)
class Arrived:
    """The result of an arrival by hand."""

    ref: Ref
    #: None if there was nothing new.
    recorded: OutsideInstance | None = None
    #: Files that the lot had before, or copies of such files.
    known: list[str] = field(default_factory=list)
    #: The uuid readers see now.
    uuid: str | None = None
    #: Whether it had been live before: this is late data.
    is_late: bool = False


@dataclass(frozen=True, slots=True)
class Arriver(Recorder):
    """Records arrivals of a dataset's lots by hand."""

    def arrive(
        self,
        lot: str,
        uris: Sequence[str] = (),
        *,
        empty: bool = False,
        replace_all: bool = False,
        allow_schema_change: bool = False,
    ) -> Arrived:
        """Record a lot from files, or as empty; the files are added to it, or with `replace_all` become all it has.

        Raises `NotABoundary`, `NoSuchLot`, `InvalidLot`, `NoLotKey`, `NothingGiven`, `FilesAndEmpty`, `HasDataAlready`,
        `NoSuchFile`, `OwnFiles`, `CannotRead`, `ColumnsDiffer`, `SaidWrong`, `CanonicalMoved`, and errors of listing
        and reading the files, with nothing recorded.
        """
        if self.dataset.kind is not DatasetKind.BOUNDARY:
            raise NotABoundary(asset=self.dataset.asset, what=_WHAT[self.dataset.kind])
        ref = make_ref(self.dataset.asset, self._partition_key(lot))
        if empty and uris:
            raise FilesAndEmpty(ref=ref)
        if not empty and not uris:
            raise NothingGiven(ref=ref)
        now = self.engine.queries.canonical.of([ref])[ref]
        arrived = Arrived(ref, uuid=now.uuid, is_late=now.uuid is not None)
        if empty:
            arrived.recorded = self._emptied(ref, now, replace_all=replace_all)
        else:
            arrived.recorded = self._filled(ref, now, uris, arrived, replace_all=replace_all)
        if arrived.recorded is None:
            self.show((), {}, [ref] if now.state is InstanceState.LIVE else ())
            return arrived
        if not allow_schema_change and arrived.recorded.files:
            self.check_columns([arrived.recorded])
        uuids = self.record([arrived.recorded], {ref: now})
        self.show([arrived.recorded], uuids)
        arrived.uuid = uuids[ref]
        return arrived

    def _partition_key(self, lot: str) -> str:
        if self.dataset.partitions is None:
            raise NoSuchLot(lot=lot, asset=self.dataset.asset, why="the asset has no partitions.")
        why = self.engine.catalog.why_not(self.dataset, lot)
        if why is None:
            return lot
        if (keys := lot_keys_if_any(self.dataset)) is None or not lot[:8].isdigit() or "P" not in lot:
            raise NoSuchLot(lot=lot, asset=self.dataset.asset, why=why)
        key = keys.key_of(Lot.parse(lot))
        if why := self.engine.catalog.why_not(self.dataset, key):
            raise NoSuchLot(lot=lot, asset=self.dataset.asset, why=why)
        return key

    def _emptied(self, ref: Ref, now: Canonical, *, replace_all: bool) -> OutsideInstance | None:
        if now.state is InstanceState.LIVE:
            if now.manifest_state == ManifestState.EMPTY.value:
                return None
            if not replace_all:
                raise HasDataAlready(ref=ref, files=counted(now.files or 0, "file"))
        return self.empty(ref, "declared empty")

    def _filled(
        self, ref: Ref, now: Canonical, uris: Sequence[str], arrived: Arrived, *, replace_all: bool
    ) -> OutsideInstance | None:
        def origin(ref: Ref, entries: Sequence[FileEntry]) -> str:
            return f"arrived by hand from {entries[0].uri} ({counted(len(entries), 'file')}, {fingerprint_of(entries)})"

        found = dict(file for uri in uris for file in found_at(uri))
        check_not_own(found, self.warehouse)
        (there,) = self.described({ref: list(found.items())}, origin)
        has = [] if replace_all else instances_of(self.engine, self.dataset.asset, ref)
        grown = grow(there, now, has)
        kept = set() if grown is None else {file.uri for file in grown.files}
        arrived.known = [file.uri for file in there.files if file.rows and (grown is None or file.uri not in kept)]
        if replace_all and now.state is InstanceState.LIVE and grown is not None:
            canonical = next(iter(instances_of(self.engine, self.dataset.asset, ref)), None)
            if canonical is not None and set(canonical.files) == set(grown.files):
                return None
        return grown


def found_at(uri: str) -> list[tuple[str, int]]:
    """The data files that a path, a url, a folder or a pattern names. Raises `NoSuchFile`."""
    path = whole_pattern(uri)
    if protocol_of(path) is None and os.path.lexists(path):
        # An existing path is literal, brackets included.
        path = glob.escape(path)
    if not (found := find_files(path)):
        raise NoSuchFile(path=uri)
    return found


def instances_of(engine: Engine, asset: str, ref: Ref) -> list[Manifest]:
    """The manifests of all instances of a ref, the newest first; missing manifests are left out."""
    found = []
    for instance in reversed(engine.queries.instances.history(ref)):
        if instance.manifest_uri is not None:
            try:
                found.append(read_manifest(Warehouse.of_manifest(instance.manifest_uri, asset), asset, instance.uuid))
            except ManifestMissing:
                continue
    return found


def grow(there: OutsideInstance, now: Canonical, instances: Sequence[Manifest]) -> OutsideInstance | None:
    """The next instance of a lot from its present files and its instances; None if there is nothing new.

    Raises `SaidWrong`, `ColumnsDiffer`.
    """
    known = {file for manifest in instances for file in manifest.files}
    canonical = next((manifest for manifest in instances if manifest.instance_uuid == now.uuid), None)
    listed = () if canonical is None else canonical.files
    unseen = [file for file in there.files if file.rows and file not in known]
    if instances and not unseen:
        return None
    there_now = {file.uri: file for file in there.files}
    if now.state is InstanceState.LIVE:
        elsewhere = _unchanged([file for file in listed if file.uri not in there_now])
        kept = [
            file for file in listed if (file == there_now[file.uri] if file.uri in there_now else file in elsewhere)
        ]
    else:
        kept = []
        for file in listed:
            if there_now.get(file.uri) == file:
                raise SaidWrong(ref=there.ref, path=file.uri)
    new = without_copies(kept, unseen)
    if instances and not new:
        return None
    schema = there.schema
    if kept and canonical is not None:
        _check_same_columns(there, canonical)
        schema = united_columns(canonical.schema, schema)
    # A lot without an instance may have no files with rows: then it is empty, with their columns.
    return replace(there, files=(*kept, *new), schema=schema, n_kept=len(kept))


def without_copies(kept: Sequence[FileEntry], new: Sequence[FileEntry]) -> list[FileEntry]:
    """The new files, except byte-for-byte copies of a kept file or of an earlier new file."""
    alike: dict[tuple[int, int], list[FileEntry]] = {}
    for file in kept:
        alike.setdefault((file.bytes, file.rows), []).append(file)
    distinct = []
    for file in new:
        others = alike.setdefault((file.bytes, file.rows), [])
        if any(_has_same_bytes(file, other) for other in others):
            continue
        others.append(file)
        distinct.append(file)
    return distinct


def _has_same_bytes(one: FileEntry, other: FileEntry) -> bool:
    """An object store may give copies different checksums: an upload in parts has that of its parts."""
    schemes = {file.checksum.partition(":")[0] for file in (one, other)}
    if one.checksum == other.checksum or schemes == {"sha256"}:
        return one.checksum == other.checksum
    return _digest(one.uri) == _digest(other.uri)


def _unchanged(files: Sequence[FileEntry]) -> set[FileEntry]:
    """The files that have the bytes of which their lot was made."""
    sizes = storage_sizes([file.uri for file in files])
    there = [file for file in files if sizes.get(file.uri) == file.bytes]
    # Earlier manifests have the checksum of a footer, which nothing computes any more: the size decides.
    return {
        file for file in there if file.checksum.startswith("footer-") or checksum_of_other(file.uri) == file.checksum
    }


def storage_sizes(paths: Sequence[str]) -> Mapping[str, int]:
    """The bytes of each existing path."""
    by_storage: dict[Storage, list[str]] = {}
    for path in paths:
        by_storage.setdefault(storage_at(path), []).append(path)
    return {path: size for storage, some in by_storage.items() for path, size in storage.file_sizes(some).items()}


def _check_same_columns(there: OutsideInstance, canonical: Manifest) -> None:
    before = canonical.schema
    if there.schema == before:
        return
    if why := why_not_fitting(there.schema, before) or why_not_fitting(before, there.schema):
        raise ColumnsDiffer(
            path=there.files[0].uri,
            ref=there.ref,
            why=why,
            other=canonical.files[0].uri,
            allow="the files of one lot have one set of columns, or `databuild lot arrive --replace` takes them alone",
        )


def _digest(path: str) -> str:
    """The digest of all bytes; for a missing file a text that no other file has."""
    digest = hashlib.sha256()
    try:
        with storage_at(path).open_binary(path) as opened:
            while chunk := opened.read(CHUNK_BYTES):
                digest.update(chunk)
    except FileNotFoundError:
        return path
    return digest.hexdigest()
