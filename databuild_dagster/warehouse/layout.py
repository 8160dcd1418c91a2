"""From an asset and an instance uuid to a path below the warehouse's root, never outside of it.

    <root>/<asset, a folder per segment>/data/instance=<uuid>/part-….parquet
                                                             /manifest.json
    <root>/.staging/<name>/           files of running builds; never read, safe to remove when none runs

The root is a folder, or a url of an object store such as `s3://bucket/prefix`; there the same names are keys, and
staged files are on the local disk until they are uploaded (`local_copies`).

Segments are percent-encoded, so that no other program takes a segment for a way up, a wildcard, a hidden file or Hive's
`key=value`. Two different assets never share a folder."""

from __future__ import annotations

import os
import re
import secrets
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from hashlib import sha256
from typing import NamedTuple

from databuild_dagster.warehouse import disk
from databuild_dagster.warehouse.disk import Listed
from databuild_dagster.warehouse.errors import InvalidInstanceUuid
from databuild_dagster.warehouse.storage import Storage, normal_root, storage_at

MANIFEST_NAME = "manifest.json"

#: How the name of an attempt's folder begins, beside the folders of instances.
ATTEMPT = "attempt="
#: Spark's name, after the `=` of a folder, for rows whose key is null.
NULL_KEY = "__HIVE_DEFAULT_PARTITION__"

#: Two calls of one job run, and two writes of one call, have other ends of their names.
_AN_ATTEMPT = re.compile(rf"{ATTEMPT}(?P<job_run>.+?)(?:-[0-9a-f]{{8}}){{1,2}}", re.DOTALL)

#: A build needs this much free space to begin.
MIN_FREE_BYTES = 16 * 1024 * 1024
#: Most file systems stop at 255 bytes per name.
MAX_NAME_LENGTH = 200

#: Encoded names that are cached: each path of an instance needs its asset's.
MAX_ENCODED = 10_000

_PLAIN = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_.-")
#: First letters of hidden files, for Unix and for Spark, and of options.
_NOT_IN_FRONT = frozenset("._-")
_A_UUID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")


@dataclass(frozen=True, slots=True)
class Warehouse:
    """The root of all instances: an absolute path, or a url. Creating the object opens nothing.

    Raises `InvalidWarehouse`.
    """

    root: str

    def __post_init__(self) -> None:
        object.__setattr__(self, "root", normal_root(self.root))

    @property
    def storage(self) -> Storage:
        """The storage of the root. Raises `StorageLibraryMissing`."""
        return storage_at(self.root)

    @classmethod
    def of_manifest(cls, path: str, asset: str) -> Warehouse:
        """The warehouse of a manifest of an asset, for readers that know only its path."""
        levels = len(asset.split("/")) + len(("data", "instance=…", MANIFEST_NAME))
        return cls(path.rsplit("/", levels)[0])

    def dataset_dir(self, asset: str) -> str:
        """The folder of an asset."""
        return os.path.join(self.root, *(encode_segment(segment) for segment in asset.split("/")))

    def instance_dir(self, asset: str, uuid: str) -> str:
        """The folder of an instance's files and manifest. Raises `InvalidInstanceUuid`."""
        if not _A_UUID.fullmatch(uuid):
            raise InvalidInstanceUuid(uuid=uuid)
        return os.path.join(self.dataset_dir(asset), "data", f"instance={uuid}")

    def manifest_path(self, asset: str, uuid: str) -> str:
        """The path of an instance's manifest."""
        return os.path.join(self.instance_dir(asset, uuid), MANIFEST_NAME)

    def new_staging_dir(self, name: str) -> str:
        """A new local path from which publishing is cheap; its parent exists, the folder itself does not.

        All assets share the parent, so that the files of a killed process are found without a search. Raises what
        writing to the warehouse would raise (`DiskTrouble`, `StorageTrouble`, `NotCreateOnly`,
        `StorageLibraryMissing`), before anything is computed.
        """
        return os.path.join(self.storage.staging_parent(self.root), f"{encode_segment(name)}-{secrets.token_hex(4)}")

    def new_attempt_dir(self, asset: str, name: str) -> str:
        """A new folder below the asset's, for a Spark that writes there itself; other attempts never use it."""
        return os.path.join(self.dataset_dir(asset), "data", f"{ATTEMPT}{encode_segment(name)}-{secrets.token_hex(4)}")

    def attempt_files(self, asset: str, job_runs: Iterable[str]) -> list[disk.Listed]:
        """Every file of the attempts of `job_runs`. Costs one listing, of the names with the prefix that all the ids share."""
        names = set(job_runs)
        prefix = f"{ATTEMPT}{os.path.commonprefix(list(names))}"  # noqa: RUF071 (of names, not of paths)
        try:
            listed = self.storage.list_files(os.path.join(self.dataset_dir(asset), "data"), deep=True, prefix=prefix)
        except FileNotFoundError:
            return []
        return [file for file in listed if job_run_of(attempt_of(file.path)) in names]

    def staging_dirs(self) -> dict[str, str]:
        """The staging folders of this machine, of running and of killed processes: given name to path.

        With an object store, the staging folders of all warehouses are included.
        """
        place = self.storage.staging_place(self.root)
        try:
            folders = os.listdir(place)
        except FileNotFoundError:
            return {}
        return {folder.rpartition("-")[0]: os.path.join(place, folder) for folder in sorted(folders)}

    def check_usable(self) -> None:
        """Write a probe. Raises `ReadOnlyWarehouse`, `DiskFull`, `DiskTrouble`, `StorageTrouble`."""
        probe = self.new_staging_dir("probe")
        disk.make_dirs(probe)
        disk.remove_tree(probe)
        disk.check_space(os.path.dirname(probe), MIN_FREE_BYTES)

    def all_files(self, folder: str) -> list[disk.Listed]:
        """Every file below a folder; none if it does not exist. Raises `DiskTrouble`, `StorageTrouble`."""
        try:
            return self.storage.list_files(folder, deep=True)
        except FileNotFoundError:
            return []

    def remove_instance(self, asset: str, uuid: str) -> None:
        """Remove an instance that no reader knows of, its manifest included, if it exists."""
        self.storage.remove_tree(self.instance_dir(asset, uuid))


def attempt_of(path: str) -> str:
    """The folder of the attempt that a file is in."""
    start = path.rindex(f"/{ATTEMPT}") + 1
    end = path.find("/", start)
    return path if end < 0 else path[:end]


def job_run_of(attempt: str) -> str | None:
    """The job run that an attempt's folder is named for: the first job run of its call. None if the name is not an attempt's."""
    found = _AN_ATTEMPT.fullmatch(attempt.rpartition("/")[2])
    return found["job_run"] if found else None


@lru_cache(maxsize=MAX_ENCODED)
def encode_segment(segment: str) -> str:
    """A file or folder name for any text, different for every text.

    A name that is too long for a file system ends in `~` and a hash; no other encoded name contains `~`.
    """
    encoded = "".join(
        character
        if character in _PLAIN and not (position == 0 and character in _NOT_IN_FRONT)
        else "".join(f"%{byte:02X}" for byte in character.encode())
        for position, character in enumerate(segment)
    )
    if len(encoded) > MAX_NAME_LENGTH:
        return f"{encoded[: MAX_NAME_LENGTH - 33]}~{sha256(segment.encode()).hexdigest()[:32]}"
    return encoded or "%"


# Every file, found by listing, which no reader ever does (rule 10.8). `data` compares the result with the log and the manifests.

_IN_A_FOLDER = re.compile(rf"(?P<folder>.*/data/(?P<kind>instance=|{ATTEMPT})(?P<name>[^/]+))/.+", re.DOTALL)


class Folder(NamedTuple):
    """A folder whose name is that of an instance or of an attempt."""

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
    """The folders of all instances and attempts, and the stray files in the `data` folders of `assets`.

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

    With an object store, the staging folders of all warehouses are included.
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
