"""The files of live instances, compared with the manifests that list them (I7, rule 10.2).

A comparison of sizes opens manifests only. A comparison of contents reads every byte, with several threads. It appends each
instance without a fault to a file; after an interruption the next comparison continues from that file.
"""

import os
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import groupby, islice
from typing import NamedTuple

import msgspec

from databuild_dagster.data.read_plan import repair_of
from databuild_dagster.data.recorded_figures import check_recorded
from databuild_dagster.model.datasets import DatasetSpec
from databuild_dagster.model.errors import DatabuildError
from databuild_dagster.model.refs import Ref, asset_of
from databuild_dagster.model.states import InstanceState
from databuild_dagster.model.wording import few_of, one_line
from databuild_dagster.store.queries.canonical import Canonical
from databuild_dagster.store.queries.queries import Queries
from databuild_dagster.warehouse import disk, errors, formats, storage
from databuild_dagster.warehouse.files import checksum_of_other
from databuild_dagster.warehouse.layout import Warehouse
from databuild_dagster.warehouse.manifest import FileEntry, Manifest, file_paths, missing_files, read_manifest
from databuild_dagster.warehouse.threads import DISK_THREADS, DaemonThreads, n_cores

#: The name, in the home, of the file with the instances that an unfinished comparison has compared.
JOURNAL_NAME = "databuild-contents.jsonl"
#: An instance that was compared longer ago is compared again.
MAX_AGE_SECONDS = 24 * 3600.0
#: Manifests or files that are read or wait for a thread.
MAX_AHEAD = 64
#: Inputs that are looked at after an error that names none of them.
MAX_INPUTS = 1000


class Fault(NamedTuple):
    """A manifest or a file of a live instance that is lost or damaged."""

    ref: Ref
    uuid: str
    file: str
    why: str
    #: A sentence with the command that repairs it.
    repair: str
    #: Whether the file itself is at fault, and not the way to it.
    is_damage: bool = True

    @property
    def sentence(self) -> str:
        return f"{self.file} of instance {self.uuid} {self.why}. {self.repair}"


class Counts(msgspec.Struct):
    """The size of what was compared."""

    instances: int = 0
    files: int = 0
    bytes: int = 0
    #: Files without a checksum that can be computed here.
    not_compared: int = 0

    def add(self, other: "Counts") -> None:
        for name in self.__struct_fields__:
            setattr(self, name, getattr(self, name) + getattr(other, name))


class _Compared(msgspec.Struct):
    """A line of the journal: an instance without a fault, by the path of its manifest."""

    manifest: str
    at: float
    counts: Counts


class Journal:
    """The instances that an unfinished comparison has compared. A line that a kill cut short is left out."""

    def __init__(self, path: str, clock: Callable[[], float] = time.time, *, from_start: bool = False) -> None:
        """Raises `DiskTrouble`."""
        self.path, self._clock = path, clock
        with disk.explained(path, "written"):
            if from_start:
                self.remove()
            now = clock()
            found = self._lines()
            self.earlier = {line.manifest: line.counts for line in found if 0 <= now - line.at <= MAX_AGE_SECONDS}
            self._file = open(path, "ab")  # noqa: SIM115 (open until the comparison ends)
            # After half a line.
            self._file.write(b"\n")

    def append(self, manifest: str, counts: Counts) -> None:
        """Record an instance. A killed process loses no line that was appended. Raises `DiskTrouble`."""
        with disk.explained(self.path, "written"):
            self._file.write(msgspec.json.encode(_Compared(manifest, self._clock(), counts)) + b"\n")
            self._file.flush()

    def remove(self) -> None:
        """The comparison is complete: the next comparison begins from the start."""
        with suppress(FileNotFoundError):
            os.unlink(self.path)

    def close(self) -> None:
        # A full disk was reported by the append that met it.
        with suppress(OSError):
            self._file.close()

    def _lines(self) -> Iterator[_Compared]:
        with suppress(FileNotFoundError), open(self.path, "rb") as lines:
            for line in lines:
                with suppress(msgspec.MsgspecError, UnicodeDecodeError):
                    yield msgspec.json.decode(line, type=_Compared)


class _Live(NamedTuple):
    """A live instance with a manifest."""

    canonical: Canonical
    spec: DatasetSpec
    warehouse: Warehouse

    @property
    def uuid(self) -> str:
        assert self.canonical.uuid is not None
        return self.canonical.uuid


class _Piece(NamedTuple):
    """A part of the work on an instance: its manifest, or a file."""

    live: _Live
    counts: Counts
    faults: tuple[Fault, ...] = ()
    manifest: Manifest | None = None
    path: str | None = None
    entry: FileEntry | None = None


@dataclass
class Comparison:
    """A pass over all live instances. With a journal it reads contents, without a journal it compares sizes."""

    queries: Queries
    journal: Journal | None = None
    #: The instances, files and bytes that the log has, and the part of them that was compared so far.
    total: Counts = field(default_factory=Counts)
    done: Counts = field(default_factory=Counts)
    #: The instances of `done` that an interrupted comparison had compared.
    n_earlier: int = 0

    def faults(self, on_progress: Callable[[], None] = lambda: None) -> Iterator[Fault]:
        """The faults of instances that readers see, by dataset and ref. Calls `on_progress` after each file."""
        datasets = list(self.queries.datasets.all().values())
        for live in self._live(datasets) if self.journal else ():
            self.total.add(Counts(1, live.canonical.files or 0, live.canonical.bytes or 0))
        threads = DaemonThreads[_Piece](max(DISK_THREADS, n_cores()), "databuild compare")
        try:
            pieces = threads.map_ahead(_compared, self._pieces(threads, datasets), MAX_AHEAD)
            for _, of_instance in groupby(pieces, key=lambda piece: piece.live.uuid):
                yield from self._ended(of_instance, on_progress)
            if self.journal is not None:
                self.journal.remove()
        finally:
            threads.close()
            if self.journal is not None:
                self.journal.close()

    def _live(self, datasets: list[DatasetSpec]) -> Iterator[_Live]:
        for spec in datasets:
            for canonical in self.queries.canonical.of_dataset(spec.asset):
                if canonical.state is InstanceState.LIVE and canonical.manifest_uri is not None:
                    yield _Live(canonical, spec, Warehouse.of_manifest(canonical.manifest_uri, spec.asset))

    def _pieces(self, threads: DaemonThreads[_Piece], datasets: list[DatasetSpec]) -> Iterator[_Piece]:
        """The manifest of each instance, followed by its files."""
        for piece in threads.map_ahead(_listed, self._left(datasets), MAX_AHEAD):
            yield piece
            if self.journal is not None:
                yield from _files_of(piece)

    def _left(self, datasets: list[DatasetSpec]) -> Iterator[_Live]:
        earlier = self.journal.earlier if self.journal is not None else {}
        for live in self._live(datasets):
            if (counts := earlier.get(live.canonical.manifest_uri or "")) is None:
                yield live
            else:
                self.done.add(counts)
                self.n_earlier += 1

    def _ended(self, pieces: Iterator[_Piece], on_progress: Callable[[], None]) -> Iterator[Fault]:
        """Record an instance once all of its pieces are compared."""
        counts, faults = Counts(), list[Fault]()
        for piece in pieces:
            counts.add(piece.counts)
            self.done.add(piece.counts)
            faults += piece.faults
            on_progress()
        live = piece.live
        if not faults:
            if self.journal is not None:
                self.journal.append(live.canonical.manifest_uri or "", counts)
            return
        # A build or a clean-up may have replaced it meanwhile.
        now = self.queries.canonical.of([live.canonical.ref])[live.canonical.ref]
        if (now.uuid, now.state) == (live.uuid, InstanceState.LIVE):
            yield from faults


def _listed(live: _Live) -> _Piece:
    """The manifest, with a fault for each listed file that is absent or differs in size."""
    path = live.canonical.manifest_uri or ""
    counts = Counts(instances=1)
    try:
        manifest = read_manifest(live.warehouse, live.spec.asset, live.uuid)
        check_recorded(live.warehouse, manifest, live.canonical)
        lost = set(missing_files(live.warehouse, manifest))
    except DatabuildError as error:
        return _Piece(live, counts, (_fault(live, path, error),))
    paths = zip(file_paths(live.warehouse, manifest), manifest.files, strict=True)
    why = "is gone or has another size"
    faults = tuple(_fault(live, path, why) for path, entry in paths if entry.uri in lost)
    return _Piece(live, counts, faults, manifest)


def _files_of(piece: _Piece) -> Iterator[_Piece]:
    """The listed files that exist, of a manifest that can be read."""
    if piece.manifest is None:
        return
    lost = {fault.file for fault in piece.faults}
    for path, entry in zip(file_paths(piece.live.warehouse, piece.manifest), piece.manifest.files, strict=True):
        if path not in lost:
            yield _Piece(piece.live, Counts(), manifest=piece.manifest, path=path, entry=entry)


def _compared(piece: _Piece) -> _Piece:
    """The piece with the result of reading its file; a manifest has been read already."""
    if piece.entry is None or piece.path is None or piece.manifest is None:
        return piece
    path, entry = piece.path, piece.entry
    scheme = (entry.checksum or "").partition(":")[0]
    counts = Counts(files=1, bytes=entry.bytes, not_compared=scheme not in _SCHEMES)
    try:
        found = _SCHEMES[scheme](path) if scheme in _SCHEMES else entry.checksum
    except FileNotFoundError:
        return piece._replace(counts=counts, faults=(_fault(piece.live, path, "is gone or has another size"),))
    except DatabuildError as error:
        return piece._replace(counts=counts, faults=(_fault(piece.live, path, error),))
    if found == entry.checksum:
        return piece._replace(counts=counts)
    why = f"has other contents than were written: its checksum is {found}, and the manifest lists {entry.checksum}"
    return piece._replace(counts=counts, faults=(_fault(piece.live, path, why),))


#: Kind of checksum to how it is computed.
_SCHEMES = {
    "sha256": lambda path: storage.storage_at(path).checksum(path),
    **dict.fromkeys(storage.STORE_CHECKSUMS, checksum_of_other),
}


def _fault(live: _Live, file: str, why: str | DatabuildError) -> Fault:
    ref = live.canonical.ref
    repair, is_damage = repair_of(live.spec, ref), True
    if isinstance(why, DatabuildError):
        is_damage = isinstance(why, errors.DAMAGE)
        if not is_damage:
            repair = why.advice
        fault = "is not the one that was recorded" if isinstance(why, errors.ManifestDiffers) else "cannot be read"
        why = f"{fault}: {one_line(why.facts.get('why') or why.message).rstrip('.')}"
    return Fault(ref, live.uuid, file, why, repair, is_damage)


class Damage(NamedTuple):
    """The inputs of a failed call that are lost or damaged."""

    refs: tuple[Ref, ...]
    sentence: str


def damage_behind(queries: Queries, read: Mapping[Ref, str], error: str) -> Damage:
    """The damage that explains an error of reading: `read` has the uuid of each input, `error` also the traceback.

    Nothing is compared after an error that names neither an input's folder nor a data file. Contents are compared only
    of the files that the error names, because other inputs may be large.
    """
    named = {ref: uuid for ref, uuid in read.items() if uuid in error}
    if not named and any(data_format.suffix in error for data_format in formats.READABLE.values()):
        named = dict(islice(read.items(), MAX_INPUTS))
    faults = [fault for fault in _faults_of(queries, named, error) if fault.is_damage] if named else []
    refs = tuple(dict.fromkeys(fault.ref for fault in faults))
    if not faults:
        return Damage((), "")
    first = faults[0]
    also = f" Also damaged: {few_of(refs[1:])}." if refs[1:] else ""
    return Damage(refs, f"its input {first.ref} is damaged. {first.repair} {first.file} {first.why}.{also}")


def _faults_of(queries: Queries, read: Mapping[Ref, str], error: str) -> Iterator[Fault]:
    canonical = queries.canonical.of(list(read))
    datasets = {spec.asset: spec for spec in queries.datasets.all().values()}
    for ref, uuid in read.items():
        now, spec = canonical[ref], datasets.get(asset_of(ref))
        if (now.uuid, now.state) != (uuid, InstanceState.LIVE) or now.manifest_uri is None or spec is None:
            continue
        piece = _listed(_Live(now, spec, Warehouse.of_manifest(now.manifest_uri, spec.asset)))
        yield from piece.faults
        for file in _files_of(piece):
            if file.path is not None and os.path.basename(file.path) in error:
                yield from _compared(file).faults
