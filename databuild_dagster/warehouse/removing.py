"""Taking away what an instance has stored, so that whoever dies half-way leaves something to go on with (SPEC 10.8).

First the manifest is replaced by one that says `removed`, with everything else in it as it was: what was there, of which
inputs, and why it failed, can still be asked. Then the files go. It is the one time that a record changes, after the log has
said so; and as it stays in its place, a process that comes back from the dead cannot write another one there.
"""

from __future__ import annotations

import msgspec

from databuild_dagster.warehouse import disk, local_copies
from databuild_dagster.warehouse.errors import EscapingFile, ManifestDamaged, ManifestMissing, NewerManifest
from databuild_dagster.warehouse.layout import Warehouse
from databuild_dagster.warehouse.manifest import ManifestState, manifest_text, read_manifest
from databuild_dagster.warehouse.storage import protocol_of


def take_away(warehouse: Warehouse, asset: str, uuid: str) -> None:
    """Remove whatever lies in an instance's folder but its manifest; all of it where nobody can read that.

    Doing it again is fine. What a manifest lists by its whole path lies elsewhere and stays. Raises `DiskTrouble`,
    `StorageTrouble`.
    """
    folder, path = warehouse.instance_dir(asset, uuid), warehouse.manifest_path(asset, uuid)
    storage = warehouse.storage
    try:
        manifest = read_manifest(warehouse, asset, uuid)
    except (ManifestMissing, ManifestDamaged, NewerManifest, EscapingFile):
        storage.remove_tree(folder)
        return
    if manifest.state is not ManifestState.REMOVED:
        text = manifest_text(msgspec.structs.replace(manifest, state=ManifestState.REMOVED))
        storage.replace(path, text.encode())
    files = [file.path for file in storage.list_files(folder, deep=True) if file.path != path]
    storage.remove_files(files, within=folder)
    if protocol_of(warehouse.root) is not None:
        disk.remove_tree(local_copies.copies_of(folder))
