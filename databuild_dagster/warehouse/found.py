"""What lies in a warehouse, whoever has put it there: found by listing, which no reader ever does (SPEC 10.8).

Whether somebody's manifest lists it, who knows the log says."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from typing import NamedTuple

from databuild_dagster.warehouse import disk
from databuild_dagster.warehouse.disk import Listed
from databuild_dagster.warehouse.layout import Warehouse

_IN_A_FOLDER = re.compile(r"(?P<folder>.*/data/instance=(?P<uuid>[^/]+))/.+", re.DOTALL)


class Folder(NamedTuple):
    """The folder of an instance, or of what looks like one."""

    path: str
    #: What stands where an instance has its uuid.
    uuid: str
    files: list[Listed]

    @property
    def bytes(self) -> int:
        return sum(file.bytes for file in self.files)

    @property
    def modified(self) -> float:
        """When anything in it was last written to, in seconds since 1970 UTC."""
        return max((file.modified for file in self.files), default=0.0)


class Found(NamedTuple):
    """What a warehouse holds of instances."""

    folders: list[Folder]
    #: Files where only folders of instances belong.
    strays: list[Listed]


def find_stored(warehouse: Warehouse, assets: Iterable[str]) -> Found:
    """The folders of instances, of the assets named or of any other, and what else lies among those of these assets.

    Looks at every name in the warehouse, and opens nothing. Raises `DiskTrouble`, `StorageTrouble`.
    """
    data = tuple(f"{warehouse.dataset_dir(asset)}/data/" for asset in assets)
    staging = f"{warehouse.storage.staging_place(warehouse.root)}/"
    folders: dict[str, Folder] = {}
    strays = []
    for file in _listed(warehouse):
        if file.path.startswith(staging):
            continue
        if within := _IN_A_FOLDER.fullmatch(file.path, len(warehouse.root)):
            path = file.path[: within.end("folder")]
            folders.setdefault(path, Folder(path, within["uuid"], [])).files.append(file)
        elif file.path.startswith(data):
            strays.append(file)
    return Found(list(folders.values()), strays)


def find_staged(warehouse: Warehouse) -> dict[str, Folder]:
    """What is being written on this machine, and what dead processes have left of it, by the name it was begun with.

    In an object store's case other warehouses' is among it.
    """
    found = {}
    for name, path in warehouse.staging_dirs().items():
        files: list[Listed] = []
        try:
            files = disk.list_files(path, deep=True)
            # One that nothing has been written to yet is as old as itself.
            files = files or [Listed(path, 0, os.path.getmtime(path), "")]
        except FileNotFoundError:
            continue
        found[name] = Folder(path, name, files)
    return found


def _listed(warehouse: Warehouse) -> list[Listed]:
    try:
        return warehouse.storage.list_files(warehouse.root, deep=True)
    except FileNotFoundError:
        return []
