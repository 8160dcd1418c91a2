"""A manifest lists the files that a job run wrote; it is written once, and readers read only what it lists.

The record is `manifest.json` beside the data: a JSON object, the same bytes for the same facts (rule 10.2). A manifest
alone makes nothing visible: the event log says which instance readers see.

Its JSON schema is made from the class and published beside this module, for tools that run none of our code."""

import json
import os
import re
from collections import OrderedDict
from collections.abc import Sequence
from contextlib import suppress
from datetime import datetime
from enum import StrEnum
from importlib.resources import files as package_files
from threading import Lock

import msgspec

from databuild_dagster.model.events import ManifestFact
from databuild_dagster.model.refs import Ref, asset_of
from databuild_dagster.warehouse import errors
from databuild_dagster.warehouse.formats import format_named
from databuild_dagster.warehouse.layout import ATTEMPT, MANIFEST_NAME, Warehouse
from databuild_dagster.warehouse.storage import Storage, is_whole, protocol_of, storage_at

#: A file of an attempt, relative to the folder of an instance.
_IN_AN_ATTEMPT = re.compile(rf"\.\./{ATTEMPT}[^/]+/(?:[^/]+/)*[^/]+", re.DOTALL)

#: Bound of the manifests of object stores that a process keeps: their listed files, plus one for each manifest; at most 80 MB.
MAX_KEPT_FILES = 200_000

SCHEMA_VERSION = 1
#: The schema's file in the package and among the reference pages.
SHIPPED = f"manifest-{SCHEMA_VERSION}.schema.json"


class ManifestState(StrEnum):
    """How complete the listed files are."""

    #: Every file is listed.
    COMPLETE = "complete"
    #: The job run failed after it had stored these files.
    PARTIAL = "partial"
    #: Intentionally no data: zero rows, with a schema.
    EMPTY = "empty"
    #: A clean-up removed the files.
    REMOVED = "removed"


class UriType(StrEnum):
    """The meaning of the listed uris."""

    #: A whole path or url of a file anywhere, which databuild never moves or removes.
    IDENTIFIER = "identifier"
    #: A file, relative to the instance's folder: a name in it, or `../attempt=…/…` where Spark wrote it itself.
    PATH = "path"
    #: The beginning of several names.
    PREFIX = "prefix"


class FileEntry(msgspec.Struct, frozen=True):
    """A file's place, size and checksum."""

    uri: str
    bytes: int
    rows: int
    checksum: str


class Column(msgspec.Struct, frozen=True):
    """A column, its type in Spark's words where Spark wrote it, else in Arrow's."""

    name: str
    type: str
    nullable: bool


class TableSchema(msgspec.Struct, frozen=True, omit_defaults=True):
    """The columns of the files."""

    columns: tuple[Column, ...]
    #: Spark's own JSON of them, from the Parquet footer; None if Spark did not write the files.
    spark: str | None = None


class Manifest(msgspec.Struct, frozen=True, kw_only=True):
    """The files that a job run wrote for a ref, with their state."""

    schema_version: int = SCHEMA_VERSION
    dataset: str
    ref: Ref
    lot_id: str | None = None
    instance_uuid: str
    job_run: str
    attempt: int
    state: ManifestState
    uri_type: UriType = UriType.PATH
    files: tuple[FileEntry, ...] = ()
    created_at: datetime
    schema: TableSchema
    #: Each input ref, and the uuid of its instance that was read.
    inputs: dict[Ref, str] = {}
    comment: str = ""
    #: For a lot in parts: the manifests of its parts.
    children: tuple[str, ...] = ()
    #: A name of `formats`.
    format: str = "parquet"
    #: The instance of a lost job run whose finished files these are (rule 6.9).
    adopted_from: str | None = None

    @property
    def rows(self) -> int:
        return sum(file.rows for file in self.files)

    @property
    def bytes(self) -> int:
        return sum(file.bytes for file in self.files)


def manifest_fact(manifest: Manifest, uri: str) -> ManifestFact:
    """The summary of a manifest that the event log keeps."""
    return ManifestFact(
        state=manifest.state.value, uri=uri, files=len(manifest.files), rows=manifest.rows, bytes=manifest.bytes
    )


class _Version(msgspec.Struct):
    schema_version: int


# Made at import: threads that decode a type for the first time at once end the process by a segmentation fault (msgspec 0.22).
_version_of = msgspec.json.Decoder(_Version).decode
_manifest_of = msgspec.json.Decoder(Manifest).decode


def write_manifest(warehouse: Warehouse, manifest: Manifest) -> str:
    """Write a manifest and return its path; a file with the same contents is fine.

    Raises `ManifestConflict` if a different manifest is there, `EscapingFile` for files outside of the instance's folder.
    """
    path, contents = _to_write(warehouse, manifest)
    write_once(warehouse, path, contents)
    _keep(path, manifest)
    return path


def write_once(warehouse: Warehouse, path: str, contents: bytes) -> None:
    """Create a file, or find it with the same contents. Raises `ManifestConflict`."""
    storage = warehouse.storage
    if not storage.create_only(path, contents) and storage.read_bytes(path) != contents:
        raise errors.ManifestConflict(path=path, entity=path)


def write_ahead(warehouse: Warehouse, manifests: Sequence[Manifest]) -> frozenset[str]:
    """Write many manifests at once; returns the uuids of the manifests that are written.

    For the rest call `write_manifest`, which writes a missing manifest again and raises what prevents it.
    """
    files: list[tuple[str, bytes]] = []
    possible: list[Manifest] = []
    for manifest in manifests:
        with suppress(errors.EscapingFile):
            files.append(_to_write(warehouse, manifest))
            possible.append(manifest)
    answers = warehouse.storage.try_to_create_each(files)
    written = [manifest for manifest, answer in zip(possible, answers, strict=True) if answer is True]
    for manifest in written:
        _keep(warehouse.manifest_path(manifest.dataset, manifest.instance_uuid), manifest)
    return frozenset(manifest.instance_uuid for manifest in written)


def write_manifests(warehouse: Warehouse, manifests: Sequence[Manifest]) -> list[bool]:
    """Write many manifests at once; for each, False if its file existed, which stays as it is. Raises `EscapingFile`."""
    return warehouse.storage.create_each([_to_write(warehouse, manifest) for manifest in manifests])


def _to_write(warehouse: Warehouse, manifest: Manifest) -> tuple[str, bytes]:
    assert manifest.dataset == asset_of(manifest.ref), (manifest.dataset, manifest.ref)
    path = warehouse.manifest_path(manifest.dataset, manifest.instance_uuid)
    _check_uris(manifest, path)
    return path, manifest_text(manifest).encode()


def manifest_text(manifest: Manifest) -> str:
    """The manifest as JSON, the same text for the same facts."""
    return msgspec.json.format(msgspec.json.encode(manifest, order="deterministic").decode(), indent=1) + "\n"


def read_manifest(warehouse: Warehouse, asset: str, uuid: str) -> Manifest:
    """The manifest of an instance.

    Raises `ManifestMissing`, `ManifestDamaged`, `NewerManifest`, `EscapingFile`.
    """
    path = warehouse.manifest_path(asset, uuid)
    try:
        contents = warehouse.storage.read_bytes(path)
    except FileNotFoundError:
        raise errors.ManifestMissing(asset=asset, uuid=uuid, path=path, kind="manifest", name=path) from None
    manifest = _decode(contents, path)
    if (manifest.dataset, manifest.instance_uuid) != (asset, uuid):
        why = f"it is that of instance {manifest.instance_uuid} of {manifest.dataset}"
        raise errors.ManifestDamaged(path=path, why=why)
    _check_uris(manifest, path)
    return _with_names(warehouse, manifest) if manifest.uri_type is UriType.PREFIX else manifest


def manifest_in(warehouse: Warehouse, folder: str) -> Manifest | None:
    """The manifest in an instance's folder, of any asset; None if there is none.

    Raises `ManifestDamaged`, `NewerManifest`, `EscapingFile`.
    """
    path = f"{folder}/{MANIFEST_NAME}"
    try:
        manifest = _decode(warehouse.storage.read_bytes(path), path)
    except FileNotFoundError:
        return None
    if f"{warehouse.dataset_dir(manifest.dataset)}/data/instance={manifest.instance_uuid}" != folder:
        raise errors.ManifestDamaged(
            path=path, why=f"it is that of instance {manifest.instance_uuid} of {manifest.dataset}"
        )
    _check_uris(manifest, path)
    return manifest


def _with_names(warehouse: Warehouse, manifest: Manifest) -> Manifest:
    """Each prefix replaced by the files whose names begin with it, if the sum of their bytes is what the manifest lists.

    Otherwise the manifest stays as it is, and its files count as lost.
    """
    folder = warehouse.instance_dir(manifest.dataset, manifest.instance_uuid)
    start = len(folder) + 1
    there = {file.path[start:]: file.bytes for file in warehouse.storage.list_files(folder, deep=False)}
    found: list[FileEntry] = []
    for prefix in manifest.files:
        names = sorted(name for name in there if name.startswith(prefix.uri) and name != MANIFEST_NAME)
        if sum(there[name] for name in names) != prefix.bytes:
            return manifest
        if len(names) == 1:
            found.append(msgspec.structs.replace(prefix, uri=names[0]))
            continue
        for name in names:
            with warehouse.storage.open_binary(f"{folder}/{name}") as file:
                facts = format_named(manifest.format).describe(file, f"{folder}/{name}")
            # The manifest has the checksum of all of them together.
            found.append(FileEntry(name, there[name], facts.rows, checksum=""))
    return msgspec.structs.replace(manifest, uri_type=UriType.PATH, files=tuple(found))


def read_manifests(warehouse: Warehouse, asset: str, uuids: Sequence[str]) -> list[Manifest]:
    """The manifests of several instances of an asset, in their order; from an object store several at once."""
    return warehouse.storage.for_each(lambda uuid: read_manifest(warehouse, asset, uuid), uuids)


def kept_manifests(warehouse: Warehouse, asset: str, uuids: Sequence[str]) -> list[Manifest]:
    """The same for instances that the log does not call removed.

    Until the log calls an instance removed, its manifest does not change, so this process fetches it from an object store
    at most once while it is kept.
    """
    return warehouse.storage.for_each(lambda uuid: _kept_manifest(warehouse, asset, uuid), uuids)


def _kept_manifest(warehouse: Warehouse, asset: str, uuid: str) -> Manifest:
    path = warehouse.manifest_path(asset, uuid)
    with _lock:
        if (found := _kept.get(path)) is not None:
            _kept.move_to_end(path)
            return found
    found = read_manifest(warehouse, asset, uuid)
    _keep(path, found)
    return found


def _keep(path: str, manifest: Manifest) -> None:
    global _n_kept_files
    if protocol_of(path) is None:
        return
    with _lock:
        if (before := _kept.pop(path, None)) is not None:
            _n_kept_files -= 1 + len(before.files)
        _kept[path] = manifest
        _n_kept_files += 1 + len(manifest.files)
        while _n_kept_files > MAX_KEPT_FILES:
            _, oldest = _kept.popitem(last=False)
            _n_kept_files -= 1 + len(oldest.files)


def file_paths(warehouse: Warehouse, manifest: Manifest) -> list[str]:
    """The full path or url of each listed file, in the order of the manifest."""
    if manifest.uri_type is UriType.IDENTIFIER:
        return [file.uri for file in manifest.files]
    folder = warehouse.instance_dir(manifest.dataset, manifest.instance_uuid)
    return [
        folder.rpartition("/")[0] + file.uri[2:] if is_in_attempt(file.uri) else os.path.join(folder, file.uri)
        for file in manifest.files
    ]


def is_in_attempt(uri: str) -> bool:
    """Whether a uri names a file of an attempt, beside the instance's folder, which other instances share."""
    return _IN_AN_ATTEMPT.fullmatch(uri) is not None and ".." not in uri[2:].split("/")


def listed_in_attempts(warehouse: Warehouse, manifest: Manifest, *, even_removed: bool = False) -> list[str]:
    """The full path of each listed file of an attempt; a `removed` manifest lists none, unless `even_removed`."""
    if manifest.uri_type is not UriType.PATH or (manifest.state is ManifestState.REMOVED and not even_removed):
        return []
    listed = zip(manifest.files, file_paths(warehouse, manifest), strict=True)
    return [path for file, path in listed if is_in_attempt(file.uri)]


def with_whole_uris(warehouse: Warehouse, manifest: Manifest) -> Manifest:
    """The manifest for readers outside of its warehouse: each file by its full path or url."""
    files = tuple(
        msgspec.structs.replace(file, uri=path)
        for path, file in zip(file_paths(warehouse, manifest), manifest.files, strict=True)
    )
    return msgspec.structs.replace(manifest, uri_type=UriType.IDENTIFIER, files=files)


def local_paths(warehouse: Warehouse, manifests: Sequence[Manifest]) -> list[str]:
    """Local paths of all listed files: the files themselves, or copies of an object store's.

    Raises `ListedFileLost`, `EscapingFile`, `StorageTrouble`.
    """
    for manifest in manifests:
        _check_links(warehouse, manifest)
    listed = [
        (path, file.bytes)
        for manifest in manifests
        for path, file in zip(file_paths(warehouse, manifest), manifest.files, strict=True)
    ]
    by_storage: dict[Storage, list[tuple[str, int]]] = {}
    for path, size_bytes in listed:
        by_storage.setdefault(storage_at(path), []).append((path, size_bytes))
    copies: dict[str, str] = {}
    for storage, files in by_storage.items():
        copies.update(zip((path for path, _ in files), storage.local_copies(files), strict=True))
    return [copies[path] for path, _ in listed]


def missing_files(warehouse: Warehouse, manifest: Manifest) -> tuple[str, ...]:
    """The listed files that are absent or differ in size (`log check --deep`); none is opened."""
    return missing_files_of(warehouse, [manifest])[0]


def missing_files_of(warehouse: Warehouse, manifests: Sequence[Manifest]) -> list[tuple[str, ...]]:
    """The same for several instances; an attempt that holds several of the files is listed once."""
    of_attempts = _sizes_in_attempts(warehouse, manifests)

    def missing(manifest: Manifest) -> tuple[str, ...]:
        uris = [file.uri for file in manifest.files]
        if manifest.uri_type is UriType.IDENTIFIER:
            sizes = storage_at(uris[0]).file_sizes(uris) if uris else {}
        elif any(map(is_in_attempt, uris)):
            paths = zip(uris, file_paths(warehouse, manifest), strict=True)
            sizes = {uri: of_attempts[path] for uri, path in paths if path in of_attempts}
        else:
            sizes = warehouse.storage.sizes(warehouse.instance_dir(manifest.dataset, manifest.instance_uuid), uris)
        return tuple(file.uri for file in manifest.files if sizes.get(file.uri) != file.bytes)

    return warehouse.storage.for_each(missing, manifests)


def _sizes_in_attempts(warehouse: Warehouse, manifests: Sequence[Manifest]) -> dict[str, int]:
    """The bytes of the listed files of attempts that exist, by path."""
    by_attempt: dict[str, list[str]] = {}
    for manifest in manifests:
        for path, file in zip(file_paths(warehouse, manifest), manifest.files, strict=True):
            if is_in_attempt(file.uri):
                attempt = path.removesuffix(file.uri[3:]) + file.uri.split("/")[1]
                by_attempt.setdefault(attempt, []).append(path)

    def sizes(attempt: tuple[str, list[str]]) -> dict[str, int]:
        folder, paths = attempt
        if len(paths) == 1:
            return warehouse.storage.file_sizes(paths)
        return {file.path: file.bytes for file in warehouse.all_files(folder)}

    found: dict[str, int] = {}
    for of_attempt in warehouse.storage.for_each(sizes, list(by_attempt.items())):
        found |= of_attempt
    return found


def manifest_schema() -> str:
    """The JSON schema of a manifest of this version: every field is allowed and required."""
    schema = msgspec.json.schema(Manifest)
    manifest = schema["$defs"]["Manifest"]
    properties = manifest["properties"]
    # A manifest of another version must fail this schema, because its shape may differ.
    properties["schema_version"] = {"const": SCHEMA_VERSION, "description": "Another version has another schema."}
    properties["created_at"]["format"] = "date-time"
    # Defaults are written, too.
    manifest["required"] = list(properties)
    whole = {"$schema": "https://json-schema.org/draft/2020-12/schema", "title": "A manifest of databuild", **schema}
    return json.dumps(whole, indent=2) + "\n"


def shipped_schema() -> str:
    """The text of the schema in the package."""
    return package_files("databuild_dagster.warehouse").joinpath(SHIPPED).read_text()


def _decode(contents: bytes, path: str) -> Manifest:
    try:
        # The version first: a newer manifest may have any other shape.
        version = _version_of(contents).schema_version
        if version > SCHEMA_VERSION:
            raise errors.NewerManifest(path=path, found=version, known=SCHEMA_VERSION)
        return _manifest_of(contents)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise errors.ManifestDamaged(path=path, why=str(error)) from error


def _check_links(warehouse: Warehouse, manifest: Manifest) -> None:
    """Refuse links, which could lead out of the folder: databuild writes none. Raises `EscapingFile`."""
    if manifest.uri_type is UriType.IDENTIFIER or protocol_of(warehouse.root) is not None:
        return
    for path, file in zip(file_paths(warehouse, manifest), manifest.files, strict=True):
        if os.path.islink(path):
            where = warehouse.manifest_path(manifest.dataset, manifest.instance_uuid)
            raise errors.EscapingFile(path=where, uri=file.uri)


def _check_uris(manifest: Manifest, path: str) -> None:
    """A plain file name or prefix cannot leave its folder, and databuild writes no folders there."""
    for file in manifest.files:
        uri = file.uri
        if manifest.uri_type is UriType.IDENTIFIER and not is_whole(uri):
            raise errors.ManifestDamaged(path=path, why=f"it lists {uri!r}, which is no whole path or url")
        if manifest.uri_type is not UriType.IDENTIFIER and (
            uri in ("", ".", "..") or ("/" in uri and not is_in_attempt(uri)) or "\\" in uri or "\0" in uri
        ):
            raise errors.EscapingFile(path=path, uri=uri)


_kept: OrderedDict[str, Manifest] = OrderedDict()
_n_kept_files = 0
_lock = Lock()
