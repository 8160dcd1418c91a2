"""The files and columns of an instance, without the place where they are."""

from __future__ import annotations

from pathlib import PurePosixPath
from typing import TypedDict

from databuild_dagster.data.recorded_figures import check_recorded
from databuild_dagster.model.errors import NotFound
from databuild_dagster.model.refs import asset_of
from databuild_dagster.model.removals import REMOVED
from databuild_dagster.shapes.fields import shaped
from databuild_dagster.store.queries.queries import Queries
from databuild_dagster.warehouse.errors import (
    EscapingFile,
    ManifestDamaged,
    ManifestMissing,
    NewerManifest,
    StorageLibraryMissing,
    StorageTrouble,
)
from databuild_dagster.warehouse.layout import Warehouse
from databuild_dagster.warehouse.manifest import read_manifest

#: Errors that hide the files of a live instance; its state is known all the same.
NO_FILES = (ManifestMissing, ManifestDamaged, NewerManifest, EscapingFile, StorageTrouble, StorageLibraryMissing)
#: Files that are listed.
MAX_FILES = 200
#: The reason why the files of a live instance are not known.
REMOVED_NOTE = "Its data was removed."


class FileShape(TypedDict):
    """A file by its name in the folder of its instance."""

    name: str
    bytes: int
    rows: int


class ColumnShape(TypedDict):
    """A column with the type that its writer gave it."""

    name: str
    type: str
    nullable: bool


class ContentsShape(TypedDict):
    """The files and columns of an instance. `note` says why they are not known; the lists are empty then."""

    uuid: str
    format: str | None
    rows: int | None
    bytes: int | None
    n_files: int
    files: list[FileShape]
    columns: list[ColumnShape]
    note: str | None


def contents_of(queries: Queries, uuid: str) -> ContentsShape:
    """The contents of an instance. Raises `NotFound`."""
    instance = queries.instance(uuid, most_inputs=0)
    if instance is None:
        raise NotFound(kind="instance", name=uuid)
    if instance.manifest_uri is None:
        return _unknown(
            uuid, "It has no manifest: it was never live, or its data is in a place that is not databuild's."
        )
    if instance.manifest_state == REMOVED:
        return _unknown(uuid, REMOVED_NOTE)
    asset = asset_of(instance.ref)
    try:
        warehouse = Warehouse.of_manifest(instance.manifest_uri, asset)
        manifest = read_manifest(warehouse, asset, uuid)
        check_recorded(warehouse, manifest, queries.data_facts([uuid])[uuid])
    except NO_FILES as error:
        return _unknown(uuid, unreadable_note(error))
    return {
        "uuid": uuid,
        "format": manifest.format,
        "rows": manifest.rows,
        "bytes": manifest.bytes,
        "n_files": len(manifest.files),
        "files": [
            {"name": PurePosixPath(file.uri).name, "bytes": file.bytes, "rows": file.rows}
            for file in manifest.files[:MAX_FILES]
        ],
        "columns": [shaped(ColumnShape, column) for column in manifest.schema.columns],
        "note": None,
    }


def unreadable_note(error: Exception) -> str:
    """Why files are not known, without the path that the message of the error has."""
    return f"Its files are not known here ({type(error).__name__}); `databuild show` says why."


def _unknown(uuid: str, note: str) -> ContentsShape:
    return {
        "uuid": uuid, "format": None, "rows": None, "bytes": None, "n_files": 0, "files": [], "columns": [], "note": note,
    }  # fmt: skip


def allows_sample(queries: Queries, asset: str) -> bool:
    """The author of an asset lets its rows be shown."""
    dataset = queries.dataset(asset)
    return dataset is not None and dataset.sample is True
