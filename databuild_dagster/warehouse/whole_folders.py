"""Folders of an attempt that each hold the files of a single instance, and no other file.

Spark may be given such an attempt by its folder, with the partition key in the folders' names, where it would ask the store
about each file of a list. A file that came later would be read too, so `check_unchanged` looks again (decision 0040)."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import NamedTuple
from urllib.parse import unquote

from databuild_dagster.model.refs import PARTITION_KEY
from databuild_dagster.warehouse.disk import is_data
from databuild_dagster.warehouse.errors import FolderChanged
from databuild_dagster.warehouse.layout import NULL_KEY, Warehouse, attempt_of
from databuild_dagster.warehouse.manifest import Manifest, UriType, file_paths, is_in_attempt

#: With fewer folders, one listing saves no request.
FEW_FOLDERS = 4
#: An engine lists every file of the attempt, a thousand by a request.
MAX_FILES_PER_FOLDER = 100

#: Partition keys that a session reads as they were written, if it reads the key of its probe so.
_PLAIN_KEY = re.compile(r"[A-Za-z0-9_.:|%+ -]+")

#: The bytes of each file, by path.
_Files = Mapping[str, int]
#: The name under which the files beside the folders are kept, marks of a finished write.
_BESIDE = ""


class _Listed(NamedTuple):
    """The files that a manifest lists."""

    uuid: str
    files: _Files


@dataclass(frozen=True, slots=True)
class WholeFolders:
    """The folders of an attempt that Spark may read as they are."""

    warehouse: Warehouse
    #: The path of the attempt.
    attempt: str
    #: The name of the files' format.
    format: str
    #: The partition key of each folder to the uuid of the instance whose files it holds.
    instances: Mapping[str, str]
    #: Whether the attempt has no other folder.
    are_all: bool
    #: All that the attempt held, by the name of the folder.
    held: Mapping[str, _Files]

    @property
    def has_marks(self) -> bool:
        """Whether marks of a finished write, such as `_SUCCESS`, are beside the folders."""
        return _BESIDE in self.held


def whole_folders(warehouse: Warehouse, manifests: Iterable[Manifest]) -> list[WholeFolders]:
    """The attempts whose folders may be read in place of listed files. Lists each attempt once. Raises `StorageTrouble`."""
    by_attempt: dict[tuple[str, str], dict[str, list[_Listed]]] = {}
    for manifest in manifests:
        if (found := _listed_folder(warehouse, manifest)) is not None:
            folder, listed = found
            attempt, _, name = folder.rpartition("/")
            by_attempt.setdefault((attempt, manifest.format), {}).setdefault(name, []).append(listed)
    many = {place: folders for place, folders in by_attempt.items() if len(folders) >= FEW_FOLDERS}
    held_by = warehouse.storage.for_each(lambda place: _held(warehouse, place[0]), list(many))
    result = []
    for ((attempt, format_name), folders), held in zip(many.items(), held_by, strict=True):
        # Two instances may list the same files: adoption copies none.
        whole = {name: of[0] for name, of in folders.items() if len(of) == 1 and of[0].files == held.get(name)}
        is_sparse = sum(map(len, held.values())) > MAX_FILES_PER_FOLDER * len(whole)
        if len(whole) < FEW_FOLDERS or is_sparse or not _are_folders_of_keys(attempt, held):
            continue
        result.append(
            WholeFolders(
                warehouse,
                attempt,
                format_name,
                {_key_of(name): listed.uuid for name, listed in whole.items()},
                are_all=whole.keys() == held.keys() - {_BESIDE},
                held=held,
            )
        )
    return result


def check_unchanged(read: Iterable[WholeFolders]) -> None:
    """Look whether the attempts hold what they held. Raises `FolderChanged`, `StorageTrouble`."""
    for folders in read:
        # Also folders of other keys: an engine may take `a%20b`, or a folder below, for the key of another one.
        if _held(folders.warehouse, folders.attempt) != folders.held:
            raise FolderChanged(folder=folders.attempt)


def _listed_folder(warehouse: Warehouse, manifest: Manifest) -> tuple[str, _Listed] | None:
    """The folder of a plain partition key in an attempt that all listed files are in; None if there is none."""
    uris = [file.uri for file in manifest.files]
    if not uris or manifest.uri_type is not UriType.PATH or not all(map(is_in_attempt, uris)):
        return None
    paths = file_paths(warehouse, manifest)
    folder = paths[0].rpartition("/")[0]
    name = folder.removeprefix(f"{attempt_of(folder)}/")
    if not name.startswith(f"{PARTITION_KEY}=") or not _PLAIN_KEY.fullmatch(_key_of(name)) or NULL_KEY in name:
        return None
    return folder, _Listed(
        manifest.instance_uuid, dict(zip(paths, (file.bytes for file in manifest.files), strict=True))
    )


def _key_of(name: str) -> str:
    return unquote(name.partition("=")[2])


def _held(warehouse: Warehouse, attempt: str) -> dict[str, dict[str, int]]:
    """What an attempt holds, by the name of the folder in it."""
    held: dict[str, dict[str, int]] = {}
    for file in warehouse.all_files(attempt):
        held.setdefault(file.path.removeprefix(f"{attempt}/").rpartition("/")[0], {})[file.path] = file.bytes
    return held


def _are_folders_of_keys(attempt: str, held: Mapping[str, _Files]) -> bool:
    """Whether Spark finds no column but the key in the folders' names, each key in one folder, and no rows beside them."""
    if any(is_data(path.removeprefix(f"{attempt}/")) for path in held.get(_BESIDE, ())):
        return False
    folders = held.keys() - {_BESIDE}
    are_of_keys = all(name.startswith(f"{PARTITION_KEY}=") and "/" not in name for name in folders)
    return are_of_keys and len({_key_of(name) for name in folders}) == len(folders)
