"""Every file of a warehouse, found by listing, which no reader ever does (rule 10.8).

`data` compares the result with the log and the manifests."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from typing import NamedTuple

from databuild_dagster.warehouse import disk
from databuild_dagster.warehouse.disk import Listed
from databuild_dagster.warehouse.layout import ATTEMPT, Warehouse

_IN_A_FOLDER = re.compile(rf"(?P<folder>.*/data/(?P<kind>instance=|{ATTEMPT})(?P<name>[^/]+))/.+", re.DOTALL)


class Folder(NamedTuple):
    """The folder of an instance or of an attempt, or one that looks like it."""

    path: str
    #: The part of the path where an instance has its uuid.
    uuid: str
    files: list[Listed]

    @property
    def bytes(self) -> int:
        return sum(file.bytes for file in self.files)

    @property
    def modified(self) -> float:
        """The time of the last write to any of its files, in seconds since 1970 UTC."""
        return max((file.modified for file in self.files), default=0.0)


class Found(NamedTuple):
    """The folders of instances and of attempts in a warehouse."""

    folders: list[Folder]
    attempts: list[Folder]
    #: Files where only such folders belong.
    strays: list[Listed]


def find_stored(warehouse: Warehouse, assets: Iterable[str]) -> Found:
    """The folders of all instances and attempts, and the files that lie beside those of these assets.

    Lists every name in the warehouse, and opens no file. Raises `DiskTrouble`, `StorageTrouble`.
    """
    data = tuple(f"{warehouse.dataset_dir(asset)}/data/" for asset in assets)
    staging = f"{warehouse.storage.staging_place(warehouse.root)}/"
    folders: dict[str, Folder] = {}
    attempts: dict[str, Folder] = {}
    strays = []
    for file in warehouse.all_files(warehouse.root):
        if file.path.startswith(staging):
            continue
        if within := _IN_A_FOLDER.fullmatch(file.path, len(warehouse.root)):
            path = file.path[: within.end("folder")]
            of_kind = attempts if within["kind"] == ATTEMPT else folders
            of_kind.setdefault(path, Folder(path, within["name"], [])).files.append(file)
        elif file.path.startswith(data):
            strays.append(file)
    return Found(list(folders.values()), list(attempts.values()), strays)


def find_staged(warehouse: Warehouse) -> dict[str, Folder]:
    """The staging folders of this machine, of running and of dead processes, by the name they were made with.

    With an object store, those of other warehouses are among them.
    """
    found = {}
    for name, path in warehouse.staging_dirs().items():
        files: list[Listed] = []
        try:
            files = disk.list_files(path, deep=True)
            # An empty folder is as old as itself.
            files = files or [Listed(path, 0, os.path.getmtime(path), "")]
        except FileNotFoundError:
            continue
        found[name] = Folder(path, name, files)
    return found
