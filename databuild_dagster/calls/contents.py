"""The files and columns of an instance, without the place where they are."""

from collections.abc import Sequence
from pathlib import PurePosixPath

import msgspec

from databuild_dagster.data.recorded_figures import check_recorded
from databuild_dagster.model.errors import NotFound
from databuild_dagster.model.refs import asset_of
from databuild_dagster.model.removals import REMOVED
from databuild_dagster.store.queries.queries import Queries
from databuild_dagster.warehouse.errors import (
    DiskTrouble,
    EscapingFile,
    ListedFileLost,
    ManifestDamaged,
    ManifestMissing,
    NewerManifest,
    NotParquet,
    StorageLibraryMissing,
    StorageTrouble,
)
from databuild_dagster.warehouse.layout import Warehouse
from databuild_dagster.warehouse.manifest import Column, read_manifest

#: Errors that hide the files of a live instance; its state is known all the same.
NO_FILES = (ManifestMissing, ManifestDamaged, NewerManifest, EscapingFile, StorageTrouble, StorageLibraryMissing)
#: And those that hide its rows.
NO_ROWS = (*NO_FILES, NotParquet, ListedFileLost, DiskTrouble, FileNotFoundError)
#: Files that are listed.
MAX_FILES = 200
#: The reason why the files of a live instance are not known.
REMOVED_NOTE = "Its data was removed."


class ShownFile(msgspec.Struct, frozen=True):
    """A file by its name in the folder of its instance."""

    name: str
    bytes: int
    rows: int


class Contents(msgspec.Struct, frozen=True):
    """The files and columns of an instance. `note` says why they are not known; the lists are empty then."""

    uuid: str
    format: str | None = None
    rows: int | None = None
    bytes: int | None = None
    n_files: int = 0
    files: list[ShownFile] = msgspec.field(default_factory=list)
    columns: Sequence[Column] = msgspec.field(default_factory=list)
    note: str | None = None


def contents_of(queries: Queries, uuid: str) -> Contents:
    """The contents of an instance. Raises `NotFound`."""
    instance = queries.instances.get(uuid, most_inputs=0)
    if instance is None:
        raise NotFound(kind="instance", name=uuid)
    if instance.manifest_uri is None:
        note = "It has no manifest: it was never live, or its data is in a place that is not databuild's."
        return Contents(uuid, note=note)
    if instance.manifest_state == REMOVED:
        return Contents(uuid, note=REMOVED_NOTE)
    asset = asset_of(instance.ref)
    try:
        warehouse = Warehouse.of_manifest(instance.manifest_uri, asset)
        manifest = read_manifest(warehouse, asset, uuid)
        check_recorded(warehouse, manifest, queries.instances.data_facts([uuid])[uuid])
    except NO_FILES as error:
        return Contents(uuid, note=unreadable_note(error))
    files = [ShownFile(PurePosixPath(file.uri).name, file.bytes, file.rows) for file in manifest.files[:MAX_FILES]]
    n_files, columns = len(manifest.files), manifest.schema.columns
    return Contents(uuid, manifest.format, manifest.rows, manifest.bytes, n_files, files, columns)


def unreadable_note(error: Exception) -> str:
    """Why files are not known, without the path that the message of the error has."""
    return f"Its files are not known here ({type(error).__name__}); `databuild show` says why."


def allows_sample(queries: Queries, asset: str) -> bool:
    """The author of an asset lets its rows be shown."""
    dataset = queries.datasets.get(asset)
    return dataset is not None and dataset.sample is True
