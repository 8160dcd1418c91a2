"""Files and folders that no manifest lists, and no reader sees (rule 10.8).

The warehouse is listed first and the log is read afterwards, so that a file that gets an owner meanwhile is left out. A
manifest is written before its event, and a build may be slow to clean up: orphans are reported once they are an hour old.
The manifest of an arrival is reported at once when its lot has another instance, because its event would be refused
(`arrival_ids`).
"""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from databuild_dagster.data.arrival_ids import decided_about
from databuild_dagster.model.refs import Ref, asset_of
from databuild_dagster.store.queries.instances import Kept
from databuild_dagster.store.queries.queries import Queries
from databuild_dagster.warehouse.errors import (
    EscapingFile,
    InvalidInstanceUuid,
    ManifestDamaged,
    ManifestMissing,
    NewerManifest,
)
from databuild_dagster.warehouse.file_index import INDEX_NAME
from databuild_dagster.warehouse.found import Folder, Found, find_staged, find_stored
from databuild_dagster.warehouse.layout import MANIFEST_NAME, Warehouse
from databuild_dagster.warehouse.manifest import Manifest, ManifestState, UriType, read_manifest
from databuild_dagster.warehouse.storage import protocol_of

#: The event of a younger file may still come.
YOUNG_SECONDS = 3600.0


class Unlisted(NamedTuple):
    """A folder with all its files, or a file, that no reader sees."""

    path: str
    is_folder: bool
    #: Of the instance that it would belong to; None if there is none.
    ref: Ref | None
    uuid: str | None
    files: int
    bytes: int
    why: str

    @property
    def is_orphan(self) -> bool:
        """No instance owns it here; another Dagster instance that writes there may own it."""
        return self.ref is None


def warehouses_of(queries: Queries, default: str) -> list[Warehouse]:
    """The warehouses of recorded instances, and the default one."""
    roots = {Warehouse(default).root: Warehouse(default)}
    for asset, folder in queries.dataset_folders():
        warehouse = Warehouse.of_manifest(f"{folder}/data/instance=…/{MANIFEST_NAME}", asset)
        if warehouse.dataset_dir(asset) == folder:
            roots.setdefault(warehouse.root, warehouse)
    return list(roots.values())


def unlisted_storage(queries: Queries, warehouse: Warehouse, now: float, stored: Found | None = None) -> list[Unlisted]:
    """The orphans of one warehouse, and of this machine's staging folders.

    Lists every name in the warehouse, unless `stored` is given. Raises `DiskTrouble`, `StorageTrouble`.
    """
    staged = find_staged(warehouse)
    stored = stored or find_stored(warehouse, [dataset.asset for dataset in queries.datasets().values()])
    kept = queries.kept(folder.uuid for folder in stored.folders)
    assets = {warehouse.dataset_dir(dataset.asset): dataset.asset for dataset in queries.datasets().values()}
    found = []
    for folder in stored.folders:
        if folder.uuid not in kept and (arrival := _arrival_in(warehouse, folder, assets)) is not None:
            of_arrival = _of_arrival(queries, folder, arrival, now)
            if of_arrival is not None:
                found += of_arrival
                continue
        found += _of_folder(warehouse, folder, kept.get(folder.uuid), now)
    found += [
        Unlisted(file.path, False, None, None, 1, file.bytes, "it is in no instance's folder")
        for file in stored.strays
        if now - file.modified > YOUNG_SECONDS
    ]
    return found + _of_staging(queries, warehouse, staged, now)


def _arrival_in(warehouse: Warehouse, folder: Folder, assets: dict[str, str]) -> Manifest | None:
    """The manifest of a folder that holds nothing else, and lists files elsewhere."""
    asset = assets.get(folder.path.rsplit("/", 2)[0])
    path = f"{folder.path}/{MANIFEST_NAME}"
    # A process killed right after the link has left the temporary file.
    others = [file.path for file in folder.files if not file.path.startswith(f"{folder.path}/.{MANIFEST_NAME}.")]
    if asset is None or others != [path]:
        return None
    try:
        manifest = read_manifest(warehouse, asset, folder.uuid)
    except (ManifestMissing, ManifestDamaged, EscapingFile, NewerManifest, InvalidInstanceUuid):
        return None
    return manifest if manifest.uri_type is UriType.IDENTIFIER else None


def _of_arrival(queries: Queries, folder: Folder, manifest: Manifest, now: float) -> list[Unlisted] | None:
    """The orphans of an arrival that the log does not have; None if it belongs to another log."""
    ref = manifest.ref
    is_ours, seen = decided_about(queries, manifest)
    if not is_ours:
        return None
    if queries.canonical([ref])[ref].uuid != seen:
        return [_whole(folder, ref, "an interrupted arrival wrote it, and its lot has another instance since")]
    if now - folder.modified > YOUNG_SECONDS:
        # Without a ref: in a store that was restored from an older copy it was live, and the next look finds it again.
        return [_whole(folder, None, "an interrupted arrival wrote it, and no process has continued it")]
    return []


def _of_folder(warehouse: Warehouse, folder: Folder, kept: Kept | None, now: float) -> list[Unlisted]:
    is_old = now - folder.modified > YOUNG_SECONDS
    if kept is None or warehouse.instance_dir(asset_of(kept.ref), folder.uuid) != folder.path:
        return [_whole(folder, None, "no such instance is recorded")] if is_old else []
    if not kept.has_ended:
        return []
    try:
        manifest = read_manifest(warehouse, asset_of(kept.ref), folder.uuid)
    except ManifestMissing:
        return [_whole(folder, kept.ref, "its job run has ended, and there is no manifest")] if is_old else []
    except (ManifestDamaged, EscapingFile) as error:
        # Of a live instance it is reported as a damaged manifest.
        return [] if kept.is_live else [_whole(folder, kept.ref, f"its manifest cannot be read: {error.message}")]
    except NewerManifest:
        return []
    start = len(folder.path) + 1
    loose = [file.path for file in folder.files if not _lists(manifest, file.path[start:])]
    # A temporary file of the listing may have been renamed meanwhile.
    still_there = warehouse.storage.file_sizes(loose)
    why = "its manifest does not list it"
    return [Unlisted(path, False, kept.ref, folder.uuid, 1, size, why) for path, size in still_there.items()]


def _lists(manifest: Manifest, name: str) -> bool:
    """Whether the manifest lists a file of the instance's own folder, or needs it."""
    if name in (MANIFEST_NAME, INDEX_NAME) or name in manifest.children:
        return True
    uris: Iterable[str] = (file.uri for file in manifest.files)
    if manifest.state is ManifestState.REMOVED or manifest.uri_type is UriType.IDENTIFIER:
        return False
    if manifest.uri_type is UriType.PREFIX:
        return any(name.startswith(uri) for uri in uris)
    return name in uris


def _of_staging(queries: Queries, warehouse: Warehouse, staged: dict[str, Folder], now: float) -> list[Unlisted]:
    job_runs = queries.job_runs_named(staged)
    found = []
    for name, folder in staged.items():
        if now - folder.modified <= YOUNG_SECONDS:
            continue
        if (run := job_runs.get(name)) is not None:
            if run.ended_at is not None and now - run.ended_at > YOUNG_SECONDS:
                found.append(_staged(folder, run.refs, f"job run {name}, which began it, has ended"))
        elif protocol_of(warehouse.root) is None:
            found.append(_staged(folder, (), "no recorded job run began it"))
    return found


def _whole(folder: Folder, ref: Ref | None, why: str) -> Unlisted:
    return Unlisted(folder.path, True, ref, folder.uuid, len(folder.files), folder.bytes, why)


def _staged(folder: Folder, refs: Sequence[Ref], why: str) -> Unlisted:
    return Unlisted(folder.path, True, refs[0] if refs else None, None, len(folder.files), folder.bytes, why)
