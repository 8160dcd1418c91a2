"""From an asset and an instance uuid to a place below the warehouse's root, and never to one outside of it.

    <root>/<asset, a folder per segment>/data/instance=<uuid>/part-….parquet
                                                             /manifest.json
    <root>/.staging/<name>/           what is being written; never read, safe to remove when nobody builds

The root is a folder, or a url of an object store such as `s3://bucket/prefix`; there the same names are keys, and
what is being written lies on the local disk until it is uploaded (`local_copies`).

Segments are percent-encoded: what another program could take for something else (a way up, a wildcard, a
hidden file, Hive's `key=value`) is spelled out. Two different assets never share a folder."""

from __future__ import annotations

import os
import re
import secrets
from dataclasses import dataclass
from functools import lru_cache
from hashlib import sha256

from databuild_dagster.warehouse import disk
from databuild_dagster.warehouse.errors import InvalidInstanceUuid
from databuild_dagster.warehouse.storage import Storage, normal_root, storage_at

MANIFEST_NAME = "manifest.json"

#: With less room than this nothing is begun.
MIN_FREE_BYTES = 16 * 1024 * 1024
#: Most file systems stop at 255 bytes per name.
MAX_NAME_LENGTH = 200

#: Names kept as they were encoded: each path of an instance asks for its asset's again.
MAX_ENCODED = 10_000

_PLAIN = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_.-")
#: Hidden files to Unix, to Spark, and an option to many a command.
_NOT_IN_FRONT = frozenset("._-")
_A_UUID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")


@dataclass(frozen=True, slots=True)
class Warehouse:
    """The place below which every instance lies: an absolute path whatever it was made from, or a url.

    Naming it opens nothing. Raises `InvalidWarehouse`.
    """

    root: str

    def __post_init__(self) -> None:
        object.__setattr__(self, "root", normal_root(self.root))

    @property
    def storage(self) -> Storage:
        """What it lies in. Raises `StorageLibraryMissing`."""
        return storage_at(self.root)

    @classmethod
    def of_manifest(cls, path: str, asset: str) -> Warehouse:
        """The warehouse that a manifest of an asset lies in; for readers that know only its path."""
        levels = len(asset.split("/")) + len(("data", "instance=…", MANIFEST_NAME))
        return cls(path.rsplit("/", levels)[0])

    def dataset_dir(self, asset: str) -> str:
        """Where everything of an asset lies."""
        return os.path.join(self.root, *(encode_segment(segment) for segment in asset.split("/")))

    def instance_dir(self, asset: str, uuid: str) -> str:
        """Where one instance lies: files and manifest. Raises `InvalidInstanceUuid`."""
        if not _A_UUID.fullmatch(uuid):
            raise InvalidInstanceUuid(uuid=uuid)
        return os.path.join(self.dataset_dir(asset), "data", f"instance={uuid}")

    def manifest_path(self, asset: str, uuid: str) -> str:
        """Where the manifest of an instance lies."""
        return os.path.join(self.instance_dir(asset, uuid), MANIFEST_NAME)

    def new_staging_dir(self, name: str) -> str:
        """A local path that nobody else has, from which publishing is cheap; its parent exists, itself it does not.

        One place for all assets, so that what a killed process has left is found without a search. Raises what
        writing to the warehouse would raise (`DiskTrouble`, `StorageTrouble`, `NotCreateOnly`,
        `StorageLibraryMissing`), before anything has been computed.
        """
        return os.path.join(self.storage.staging_parent(self.root), f"{encode_segment(name)}-{secrets.token_hex(4)}")

    def staging_dirs(self) -> dict[str, str]:
        """What is being written on this machine, and what killed processes have left of it: name to path.

        The name is what was given for it. In an object store's case other warehouses' are among them.
        """
        place = self.storage.staging_place(self.root)
        try:
            folders = os.listdir(place)
        except FileNotFoundError:
            return {}
        return {folder.rpartition("-")[0]: os.path.join(place, folder) for folder in sorted(folders)}

    def check_usable(self) -> None:
        """Whether anything could be written. Raises `ReadOnlyWarehouse`, `DiskFull`, `DiskTrouble`, `StorageTrouble`."""
        probe = self.new_staging_dir("probe")
        disk.make_dirs(probe)
        disk.remove_tree(probe)
        disk.check_space(os.path.dirname(probe), MIN_FREE_BYTES)

    def remove_instance(self, asset: str, uuid: str) -> None:
        """Remove an instance, its manifest included, if it is there: what nobody was told of, or may not see."""
        self.storage.remove_tree(self.instance_dir(asset, uuid))


@lru_cache(maxsize=MAX_ENCODED)
def encode_segment(segment: str) -> str:
    """One name of a file or folder for any text, a different one for every text.

    What is too long for a file system ends in a hash: `~` stands in no other encoded name.
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
