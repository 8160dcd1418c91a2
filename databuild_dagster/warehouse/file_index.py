"""The figures of each file of an instance, in an index beside its manifest, for readers with a filter (rule 9.8, build_index).

An index is optional, and the manifest counts: a file whose checksum the index does not have is read. A damaged index,
or an index of a newer version, is ignored.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence

import msgspec

from databuild_dagster.model.logs import logger
from databuild_dagster.warehouse.filters import ColumnFigures, FileFigures, Filter
from databuild_dagster.warehouse.layout import Warehouse
from databuild_dagster.warehouse.manifest import FileEntry, Manifest, UriType

INDEX_VERSION = 1
INDEX_NAME = "index.json"

_log = logger(__name__)


class FileIndex(msgspec.Struct, frozen=True, omit_defaults=True):
    """A file's checksum, and the figures of each indexed column."""

    checksum: str
    rows: int
    columns: dict[str, ColumnFigures]


class InstanceIndex(msgspec.Struct, frozen=True, kw_only=True):
    """The files of an instance by their uri in the manifest, and the types of the indexed columns in Spark's words."""

    index_version: int = INDEX_VERSION
    instance_uuid: str
    types: dict[str, str]
    files: dict[str, FileIndex]


class _Version(msgspec.Struct):
    index_version: int


# Made at import, as those of manifests.
_version_of = msgspec.json.Decoder(_Version).decode
_index_of = msgspec.json.Decoder(InstanceIndex).decode


def index_path(warehouse: Warehouse, asset: str, uuid: str) -> str:
    """The path of an instance's index, whether it exists or not."""
    return os.path.join(warehouse.instance_dir(asset, uuid), INDEX_NAME)


def write_index(warehouse: Warehouse, asset: str, index: InstanceIndex) -> str:
    """Create or replace the index; returns its path."""
    path = index_path(warehouse, asset, index.instance_uuid)
    contents = msgspec.json.format(msgspec.json.encode(index, order="deterministic"), indent=1) + b"\n"
    warehouse.storage.replace(path, contents)
    return path


def read_index(warehouse: Warehouse, asset: str, uuid: str) -> InstanceIndex | None:
    """The index of an instance; None if it is absent, newer or damaged, which is logged."""
    path = index_path(warehouse, asset, uuid)
    try:
        contents = warehouse.storage.read_bytes(path)
        if _version_of(contents).index_version > INDEX_VERSION:
            return None
        index = _index_of(contents)
    except FileNotFoundError:
        return None
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        _log.warning("databuild: the index %s is damaged, so every file is read: %s", path, error)
        return None
    return index if index.instance_uuid == uuid else None


def narrowed(warehouse: Warehouse, manifests: Sequence[Manifest], wanted: Filter) -> tuple[list[Manifest], FilesRead]:
    """The manifests without the files in which no row can match, and the number of files left."""
    found = warehouse.storage.for_each(lambda manifest: _narrowed(warehouse, manifest, wanted), manifests)
    n_files, of = (sum(len(manifest.files) for manifest in several) for several in (found, manifests))
    return found, FilesRead(n_files, of)


def without_needless_files(
    warehouse: Warehouse, manifests: Sequence[Manifest], wanted: Filter | None
) -> Sequence[Manifest]:
    """`narrowed` for a reader; the number of files read is logged, as INFO."""
    if wanted is None:
        return manifests
    found, read = narrowed(warehouse, manifests, wanted)
    _log.info("databuild: %s of %s files are read where %s", read.files, read.of, wanted.where)
    return found


class FilesRead(msgspec.Struct, frozen=True):
    """The number of files that a filter leaves, and of all."""

    files: int
    of: int


def _narrowed(warehouse: Warehouse, manifest: Manifest, wanted: Filter) -> Manifest:
    # The owner of adopted files may change them.
    if not manifest.files or not wanted.columns or manifest.uri_type is UriType.IDENTIFIER:
        return manifest
    index = read_index(warehouse, manifest.dataset, manifest.instance_uuid)
    if index is None or wanted.columns.isdisjoint(name.lower() for name in index.types):
        return manifest
    kept = tuple(file for file in manifest.files if _might_match(file, index, wanted))
    return msgspec.structs.replace(manifest, files=kept)


def _might_match(file: FileEntry, index: InstanceIndex, wanted: Filter) -> bool:
    known = index.files.get(file.uri)
    if known is None or known.checksum != file.checksum:
        return True
    return wanted.might_match(FileFigures(known.rows, _by_name(known.columns, index.types)))


def _by_name(columns: Mapping[str, ColumnFigures], types: Mapping[str, str]) -> dict[str, tuple[str, ColumnFigures]]:
    """The columns by name in lower case, as in Spark; two that differ only in case are left out."""
    names = [name.lower() for name in columns]
    return {
        name.lower(): (types[name], figures)
        for name, figures in columns.items()
        if name in types and names.count(name.lower()) == 1
    }
