"""Removes the files of instances, and files of attempts that no manifest lists (rule 10.8).

Two instances of one ref may list the same file of an attempt, if a later job run took it over from an earlier one. So a
manifest goes first, or becomes `removed`, and the manifests of the other instances are read afterwards. A job run that takes
files over writes its manifest first, and reads the earlier manifest afterwards. So the removal or the job run sees the other."""

from collections.abc import Collection, Iterable, Sequence

import msgspec

from databuild_dagster.warehouse import disk, local_copies
from databuild_dagster.warehouse.errors import UNREADABLE_MANIFEST, ManifestMissing
from databuild_dagster.warehouse.layout import Warehouse, attempt_of
from databuild_dagster.warehouse.manifest import (
    Manifest,
    ManifestState,
    listed_in_attempts,
    manifest_text,
    read_manifest,
)
from databuild_dagster.warehouse.storage import protocol_of, storage_at


def take_away(warehouse: Warehouse, asset: str, uuid: str, others: Sequence[str] = ()) -> None:
    """Remove an instance's files but its manifest, which becomes `removed` first (rule 10.8).

    The manifest loses only the names of its parts' manifests, which are removed. So its inputs and its failure can still be shown,
    and a late process cannot write a second manifest. No other change is ever made to a manifest; the log records the removal first.
    A folder without a readable manifest is removed whole. Files listed by their whole path stay, and files of an attempt that
    an instance of `others` lists. A repeated call is fine. Raises `DiskTrouble`, `StorageTrouble`.
    """
    folder, path = warehouse.instance_dir(asset, uuid), warehouse.manifest_path(asset, uuid)
    storage = warehouse.storage
    manifest = _readable(warehouse, asset, uuid)
    if manifest is None:
        storage.remove_tree(folder)
        return
    if manifest.state is not ManifestState.REMOVED:
        removed = msgspec.structs.replace(manifest, state=ManifestState.REMOVED, children=())
        storage.replace(path, manifest_text(removed).encode())
    files = [file.path for file in storage.list_files(folder, deep=True) if file.path != path]
    storage.remove_files(files, within=folder)
    _remove_unshared(warehouse, manifest, others)
    if protocol_of(warehouse.root) is not None:
        disk.remove_tree(local_copies.copies_of(folder))


def discard(warehouse: Warehouse, asset: str, uuid: str, others: Sequence[str] = ()) -> None:
    """Remove an instance that no reader knows of, its manifest, and its files of attempts unless an instance of `others` lists them.

    Raises `DiskTrouble`, `StorageTrouble`.
    """
    manifest = _readable(warehouse, asset, uuid)
    warehouse.remove_instance(asset, uuid)
    if manifest is not None:
        _remove_unshared(warehouse, manifest, others)


def files_in_attempts(warehouse: Warehouse, asset: str, uuids: Sequence[str]) -> set[str] | None:
    """The files of attempts that the instances `uuids` list; None if any of their manifests cannot be read.

    Raises `DiskTrouble`, `StorageTrouble`.
    """

    def listed(uuid: str) -> list[str]:
        try:
            return listed_in_attempts(warehouse, read_manifest(warehouse, asset, uuid))
        except ManifestMissing:
            return []

    try:
        found = warehouse.storage.for_each(listed, uuids)
    except UNREADABLE_MANIFEST:
        return None
    return {path for paths in found for path in paths}


def remove_from_attempts(paths: Collection[str]) -> None:
    """Remove files of attempts, and the marks of an attempt in which nothing else is left.

    Raises `DiskTrouble`, `StorageTrouble`.
    """
    by_attempt: dict[str, list[str]] = {}
    for path in paths:
        by_attempt.setdefault(attempt_of(path), []).append(path)
    for attempt, files in by_attempt.items():
        storage = storage_at(attempt)
        storage.remove_files(files, within=attempt)
        try:
            left = [file.path for file in storage.list_files(attempt, deep=True)]
        except FileNotFoundError:
            continue
        if all(map(is_mark, left)):
            storage.remove_files(left, within=attempt)


def is_mark(path: str) -> bool:
    """Whether a file of an attempt has no rows: `_SUCCESS`, `_committed_…`."""
    return not disk.is_data(path.rpartition("/")[2])


def _readable(warehouse: Warehouse, asset: str, uuid: str) -> Manifest | None:
    try:
        return read_manifest(warehouse, asset, uuid)
    except UNREADABLE_MANIFEST:
        return None


def _remove_unshared(warehouse: Warehouse, manifest: Manifest, others: Iterable[str]) -> None:
    """Remove the files of attempts that only this manifest lists; none if the manifest of an instance in `others` is unreadable."""
    paths = listed_in_attempts(warehouse, manifest, even_removed=True)
    if not paths:
        return
    shared = files_in_attempts(warehouse, manifest.dataset, [uuid for uuid in others if uuid != manifest.instance_uuid])
    if shared is not None:
        remove_from_attempts([path for path in paths if path not in shared])


def remove_attempts(warehouse: Warehouse, asset: str, uuids: Iterable[str]) -> None:
    """Remove the folders of failed attempts in parts, and folders without a manifest, whose removal was interrupted.

    Failed attempts without parts stay for inspection. Raises `DiskTrouble`, `StorageTrouble`.
    """
    for uuid in uuids:
        try:
            lot = read_manifest(warehouse, asset, uuid)
        except ManifestMissing:
            pass
        except UNREADABLE_MANIFEST:
            continue
        else:
            if lot.state is not ManifestState.PARTIAL or not lot.children:
                continue
        warehouse.remove_instance(asset, uuid)
