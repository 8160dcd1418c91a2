"""A manifest says what a job run wrote; it is written once, and readers read what it lists and nothing else.

The record is `manifest.json` beside the data (SPEC 10.2). It is JSON, one object, the same bytes for the same
facts. A manifest alone makes nothing visible: the event log says which instance readers see."""

from __future__ import annotations

import os
from collections.abc import Sequence
from datetime import datetime
from enum import StrEnum

import msgspec

from databuild_dagster.model.refs import asset_of
from databuild_dagster.warehouse.errors import (
    EscapingFile,
    ManifestConflict,
    ManifestDamaged,
    ManifestMissing,
    NewerManifest,
)
from databuild_dagster.warehouse.layout import Warehouse
from databuild_dagster.warehouse.storage import is_whole, protocol_of, storage_at

SCHEMA_VERSION = 1


class ManifestState(StrEnum):
    """What the files amount to."""

    #: All that was to be written is listed.
    COMPLETE = "complete"
    #: What was stored before the job run failed.
    PARTIAL = "partial"
    #: Intentionally no data: zero rows, with a schema.
    EMPTY = "empty"
    #: The files were taken away on purpose.
    REMOVED = "removed"


class UriType(StrEnum):
    """What a listed uri names."""

    #: A whole path or url of a file that may lie anywhere: it is listed, and never ours to move or to remove.
    IDENTIFIER = "identifier"
    #: A file, relative to the instance's folder.
    PATH = "path"
    #: The beginning of several names.
    PREFIX = "prefix"


class FileEntry(msgspec.Struct, frozen=True):
    """One file: where, how large, what it must hash to."""

    uri: str
    bytes: int
    rows: int
    checksum: str


class Column(msgspec.Struct, frozen=True):
    """One column, its type in Spark's words where Spark wrote it, else in Arrow's."""

    name: str
    type: str
    nullable: bool


class TableSchema(msgspec.Struct, frozen=True, omit_defaults=True):
    """The columns, and what Spark needs to see exactly them again."""

    columns: tuple[Column, ...]
    #: Spark's own JSON, as it stands in the Parquet footer; None if something else wrote the files.
    spark: str | None = None


class Manifest(msgspec.Struct, frozen=True, kw_only=True):
    """The list of what a job run wrote for one ref, with its state."""

    schema_version: int = SCHEMA_VERSION
    dataset: str
    ref: str
    lot_id: str | None = None
    instance_uuid: str
    job_run: str
    attempt: int
    state: ManifestState
    uri_type: UriType = UriType.PATH
    files: tuple[FileEntry, ...] = ()
    created_at: datetime
    schema: TableSchema
    #: Each input ref, and the uuid of the instance of it that was read.
    inputs: dict[str, str] = {}
    comment: str = ""
    #: For a lot in parts: the manifests of its parts.
    children: tuple[str, ...] = ()
    #: What the files are written in, a name of `formats`.
    format: str = "parquet"

    @property
    def rows(self) -> int:
        return sum(file.rows for file in self.files)

    @property
    def bytes(self) -> int:
        return sum(file.bytes for file in self.files)


class _Version(msgspec.Struct):
    schema_version: int


def write_manifest(warehouse: Warehouse, manifest: Manifest) -> str:
    """Write a manifest that must not exist yet; returns its path. Writing the very same again is fine.

    Raises `ManifestConflict` if another one is there, `EscapingFile` for files that are not the instance's.
    """
    path, contents = _to_write(warehouse, manifest)
    storage = warehouse.storage
    if not storage.create_only(path, contents) and storage.read_bytes(path) != contents:
        raise ManifestConflict(path=path, entity=path)
    return path


def write_manifests(warehouse: Warehouse, manifests: Sequence[Manifest]) -> list[bool]:
    """Write many, in less time than one after the other: of each whether it was not there.

    What is there is left as it is, and what it says is the caller's to judge. Raises `EscapingFile`.
    """
    return warehouse.storage.create_each([_to_write(warehouse, manifest) for manifest in manifests])


def _to_write(warehouse: Warehouse, manifest: Manifest) -> tuple[str, bytes]:
    assert manifest.dataset == asset_of(manifest.ref), (manifest.dataset, manifest.ref)
    path = warehouse.manifest_path(manifest.dataset, manifest.instance_uuid)
    _check_uris(manifest, path)
    return path, manifest_text(manifest).encode()


def manifest_text(manifest: Manifest) -> str:
    """As JSON, the same text for the same facts."""
    return msgspec.json.format(msgspec.json.encode(manifest, order="deterministic").decode(), indent=1) + "\n"


def read_manifest(warehouse: Warehouse, asset: str, uuid: str) -> Manifest:
    """What an instance holds.

    Raises `ManifestMissing`, `ManifestDamaged`, `NewerManifest`, `EscapingFile`.
    """
    path = warehouse.manifest_path(asset, uuid)
    try:
        contents = warehouse.storage.read_bytes(path)
    except FileNotFoundError:
        raise ManifestMissing(asset=asset, uuid=uuid, path=path, kind="manifest", name=path) from None
    manifest = _decode(contents, path)
    if (manifest.dataset, manifest.instance_uuid) != (asset, uuid):
        why = f"it is that of instance {manifest.instance_uuid} of {manifest.dataset}"
        raise ManifestDamaged(path=path, why=why)
    _check_uris(manifest, path)
    return manifest


def read_manifests(warehouse: Warehouse, asset: str, uuids: Sequence[str]) -> list[Manifest]:
    """What several instances of an asset hold, in their order; from an object store several at once."""
    return warehouse.storage.for_each(lambda uuid: read_manifest(warehouse, asset, uuid), uuids)


def file_paths(warehouse: Warehouse, manifest: Manifest) -> list[str]:
    """The listed files, each with its full path or url, in the order of the manifest."""
    if manifest.uri_type is UriType.IDENTIFIER:
        return [file.uri for file in manifest.files]
    folder = warehouse.instance_dir(manifest.dataset, manifest.instance_uuid)
    return [os.path.join(folder, file.uri) for file in manifest.files]


def with_whole_uris(warehouse: Warehouse, manifest: Manifest) -> Manifest:
    """The same, for whoever reads from another warehouse: each file by its full path or url."""
    files = tuple(
        msgspec.structs.replace(file, uri=path)
        for path, file in zip(file_paths(warehouse, manifest), manifest.files, strict=True)
    )
    return msgspec.structs.replace(manifest, uri_type=UriType.IDENTIFIER, files=files)


def local_paths(warehouse: Warehouse, manifests: Sequence[Manifest]) -> list[str]:
    """Where this machine can open all listed files: the very files, or copies of what an object store holds.

    Raises `ListedFileLost`, `EscapingFile`, `StorageTrouble`.
    """
    for manifest in manifests:
        _check_links(warehouse, manifest)
    listed = [
        (path, file.bytes)
        for manifest in manifests
        for path, file in zip(file_paths(warehouse, manifest), manifest.files, strict=True)
    ]
    by_protocol: dict[str | None, list[tuple[str, int]]] = {}
    for path, size_bytes in listed:
        by_protocol.setdefault(protocol_of(path), []).append((path, size_bytes))
    copies: dict[str, str] = {}
    for files in by_protocol.values():
        found = storage_at(files[0][0]).local_copies(files)
        copies.update(zip((path for path, _ in files), found, strict=True))
    return [copies[path] for path, _ in listed]


def missing_files(warehouse: Warehouse, manifest: Manifest) -> tuple[str, ...]:
    """The listed files that are not there, or of another size (`check --deep`); none is opened."""
    uris = [file.uri for file in manifest.files]
    if manifest.uri_type is UriType.IDENTIFIER:
        sizes = storage_at(uris[0]).file_sizes(uris) if uris else {}
    else:
        sizes = warehouse.storage.sizes(warehouse.instance_dir(manifest.dataset, manifest.instance_uuid), uris)
    return tuple(file.uri for file in manifest.files if sizes.get(file.uri) != file.bytes)


def _decode(contents: bytes, path: str) -> Manifest:
    try:
        # The version first: a newer manifest may have any other shape.
        version = msgspec.json.decode(contents, type=_Version).schema_version
        if version > SCHEMA_VERSION:
            raise NewerManifest(path=path, found=version, known=SCHEMA_VERSION)
        return msgspec.json.decode(contents, type=Manifest)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise ManifestDamaged(path=path, why=str(error)) from error


def _check_links(warehouse: Warehouse, manifest: Manifest) -> None:
    """Nothing we write is a link, which could lead out of the folder as a way up does."""
    if manifest.uri_type is UriType.IDENTIFIER or protocol_of(warehouse.root) is not None:
        return
    for path, file in zip(file_paths(warehouse, manifest), manifest.files, strict=True):
        if os.path.islink(path):
            where = warehouse.manifest_path(manifest.dataset, manifest.instance_uuid)
            raise EscapingFile(path=where, uri=file.uri)


def _check_uris(manifest: Manifest, path: str) -> None:
    """A plain file name, or the beginning of one, cannot leave its folder, and nothing we write lies deeper."""
    for file in manifest.files:
        uri = file.uri
        if manifest.uri_type is UriType.IDENTIFIER and not is_whole(uri):
            raise ManifestDamaged(path=path, why=f"it lists {uri!r}, which is no whole path or url")
        if manifest.uri_type is not UriType.IDENTIFIER and (
            uri in ("", ".", "..") or "/" in uri or "\\" in uri or "\0" in uri
        ):
            raise EscapingFile(path=path, uri=uri)
