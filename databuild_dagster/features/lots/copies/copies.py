"""Copies of lots' manifests and of arcs' states under Clusterless's keys, for other tools (rule 10.2).

    <root>/datasets/name=<dataset>/version=<v>/lot=<lot>/state=<state>[/attempt=<uuid>]/manifest.json
    <root>/arcs/project=<p>/version=<v>/arc=<arc>/lot=<lot>/<state>.arc

The record is beside the data, and the log says which instance counts; copies are replaced and removed as the log moves,
and databuild never reads them. No asset's own folder is among them: an encoded name has no `=`."""

import os
import re
from collections.abc import Iterable, Mapping, Sequence, Set
from hashlib import md5
from itertools import takewhile
from typing import NamedTuple, TypeAlias

import msgspec

from databuild_dagster.warehouse.disk import Listed
from databuild_dagster.warehouse.layout import MANIFEST_NAME, Warehouse, encode_segment
from databuild_dagster.warehouse.manifest import Manifest, ManifestState, manifest_text, with_whole_uris
from databuild_dagster.warehouse.storage import is_whole, protocol_of

#: The version of a dataset that declares none.
NO_VERSION = "0"
#: The lot of a dataset without partitions; no encoded name is that.
NO_LOT = "_"
#: States of which a lot may have several attempts.
_BY_ATTEMPT = frozenset({ManifestState.PARTIAL, ManifestState.REMOVED})
#: The beginnings, below the root, of all copies.
_BEGINNINGS = (("datasets", "name="), ("arcs", "project="))
_OF_A_LOT = re.compile(r"(?P<lot>.*?/lot=[^/]*)/", re.DOTALL)


#: Lots whose names differ in two characters alone are listed together, if they are several: at most a hundred days.
NEIGHBORS_DIFFER = 2
FEW_NEIGHBORS = 4


#: The files that a lot's folder has, each with the checksum that the store gives for it.
Present: TypeAlias = Mapping[str, str | None]


class LotFolder(NamedTuple):
    """A lot's folder and the files that it has to have."""

    path: str
    files: Mapping[str, bytes]
    #: None where that is not known.
    present: Present | None = None


class CopiedFiles(NamedTuple):
    """The number of files written to and removed from lots' folders."""

    written: int
    removed: int


def lot_folder(warehouse: Warehouse, dataset: str, version: str, lot: str | None) -> str:
    """The folder of copies of a lot's manifest; `lot` is a lot id, any partition key, or None."""
    names = ("datasets", f"name={encode_segment(dataset)}", f"version={encode_segment(version)}", _lot(lot))
    return os.path.join(warehouse.root, *names)


def arc_folder(warehouse: Warehouse, project: str, version: str, arc: str, lot: str | None) -> str:
    """The folder of an arc's state of a lot."""
    names = ("arcs", f"project={encode_segment(project)}", f"version={encode_segment(version)}")
    return os.path.join(warehouse.root, *names, f"arc={encode_segment(arc)}", _lot(lot))


def manifest_copy(warehouse: Warehouse, folder: str, manifest: Manifest) -> tuple[str, bytes]:
    """Path and contents of the copy of a manifest in its lot's folder.

    The copy names each file and each child by its whole path or url, because they are in a different folder.
    """
    attempt = (f"attempt={manifest.instance_uuid}",) if manifest.state in _BY_ATTEMPT else ()
    path = os.path.join(folder, f"state={manifest.state}", *attempt, MANIFEST_NAME)
    beside = warehouse.instance_dir(manifest.dataset, manifest.instance_uuid)
    children = tuple(child if is_whole(child) else os.path.join(beside, child) for child in manifest.children)
    copy = msgspec.structs.replace(with_whole_uris(warehouse, manifest), children=children)
    return path, manifest_text(copy).encode()


def arc_copy(folder: str, state: str, facts: Mapping[str, object]) -> tuple[str, bytes]:
    """Path and contents of an arc's state of a lot: its name is what counts."""
    return os.path.join(folder, f"{state}.arc"), msgspec.json.encode(facts, order="deterministic") + b"\n"


def copies_in(warehouse: Warehouse, folders: Sequence[str]) -> dict[str, Present]:
    """The files in folders of lots, by folder; an object store is listed once for neighbors, such as the days of a month.

    Raises `DiskTrouble`, `StorageTrouble`.
    """
    beside = _neighbors(folders) if protocol_of(warehouse.root) is not None else {}
    shared = {start: near for start, near in beside.items() if len(near) >= FEW_NEIGHBORS}

    def listed(start: str) -> list[Listed]:
        parent, _, prefix = start.rpartition("/")
        return warehouse.storage.list_files(parent, deep=True, prefix=prefix)

    found: dict[str, dict[str, str | None]] = {folder: {} for near in shared.values() for folder in near}
    for start, listed_there in zip(shared, warehouse.storage.for_each(listed, list(shared)), strict=True):
        depth = start.count("/") + 1
        for file in listed_there:
            if (files := found.get("/".join(file.path.split("/")[:depth]))) is not None:
                files[file.path] = file.checksum
    alone = [folder for folder in folders if folder not in found]
    there = warehouse.storage.for_each(lambda folder: _present(warehouse, folder), alone)
    return {**found, **dict(zip(alone, there, strict=True))}


def _neighbors(folders: Iterable[str]) -> dict[str, list[str]]:
    """Folders by the beginning that neighbors share: the common ending of a dataset, such as `P1D000` of days, is cut off first."""
    of_parent: dict[str, list[str]] = {}
    for folder in folders:
        of_parent.setdefault(folder.rpartition("/")[0], []).append(folder)
    beside: dict[str, list[str]] = {}
    for parent, found in of_parent.items():
        end = _common_end(found)
        for folder in found:
            start = folder.removesuffix(end)[:-NEIGHBORS_DIFFER]
            # Not above the folders of lots.
            beside.setdefault(max(start, f"{parent}/lot=", key=len), []).append(folder)
    return beside


def _common_end(names: Sequence[str]) -> str:
    """The characters with which all of several names end."""
    first, last = min(names, key=lambda name: name[::-1]), max(names, key=lambda name: name[::-1])
    same = takewhile(lambda pair: pair[0] == pair[1], zip(reversed(first), reversed(last), strict=False))
    return "" if first == last else "".join(one for one, _ in same)[::-1]


def put_copies(warehouse: Warehouse, folder: str, files: Mapping[str, bytes]) -> CopiedFiles:
    """`put_all_copies` for a single folder."""
    return put_all_copies(warehouse, [LotFolder(folder, files)])


def put_all_copies(warehouse: Warehouse, folders: Iterable[LotFolder]) -> CopiedFiles:
    """Write the files of lots' folders, all at once, then remove all other files there. Raises `DiskTrouble`, `StorageTrouble`."""
    storage, written = warehouse.storage, dict[str, bytes]()
    # Files that are there, without a checksum that proves their contents.
    unknown: list[tuple[str, bytes]] = []
    left_in: dict[str, list[str]] = {}
    for folder, files, known in folders:
        present = _present(warehouse, folder) if known is None else known
        for path, contents in files.items():
            if path not in present:
                written[path] = contents
            elif not _is_md5_of(present[path], contents):
                unknown.append((path, contents))
        if left := sorted(present.keys() - files.keys()):
            left_in[folder] = left
    are_same = storage.for_each(lambda file: _says(warehouse, *file), unknown)
    written.update(file for file, is_same in zip(unknown, are_same, strict=True) if not is_same)
    storage.replace_each(list(written.items()))
    storage.for_each(lambda folder: storage.remove_files(left_in[folder], folder), list(left_in))
    return CopiedFiles(len(written), sum(map(len, left_in.values())))


def wrong_copies(
    warehouse: Warehouse, folder: str, files: Mapping[str, bytes], present: Set[str] | None = None
) -> dict[str, str]:
    """The wrong files of a lot's folder, each with the reason. Raises `DiskTrouble`, `StorageTrouble`."""
    present = _names(warehouse, folder) if present is None else present
    wrong = {path: "it is missing" for path in files if path not in present}
    for path in files.keys() & present:
        if not _says(warehouse, path, files[path]):
            wrong[path] = "it differs from the record"
    return wrong | dict.fromkeys(present - files.keys(), "it should not be there any more")


def all_copies(warehouse: Warehouse) -> dict[str, set[str]]:
    """Every file under the keys of a warehouse, by the folder of its lot; a file in no such folder by its own path.

    Raises `DiskTrouble`, `StorageTrouble`.
    """
    found: dict[str, set[str]] = {}
    for top, beginning in _BEGINNINGS:
        folder = os.path.join(warehouse.root, top)
        start = os.path.join(folder, beginning)
        for path in _names(warehouse, folder):
            if path.startswith(start):
                within = _OF_A_LOT.match(path, len(start))
                found.setdefault(path if within is None else path[: within.end("lot")], set()).add(path)
    return found


def remove_copies(warehouse: Warehouse, paths: Sequence[str]) -> None:
    """Remove copies, and the folders that are empty then."""
    for top, _ in _BEGINNINGS:
        folder = os.path.join(warehouse.root, top)
        warehouse.storage.remove_files([path for path in paths if path.startswith(folder + "/")], folder)


def _is_md5_of(checksum: str | None, contents: bytes) -> bool:
    """Whether a listing proves the contents. Most stores give the MD5 of a small object, and no byte of it is read."""
    return checksum == f"etag:{md5(contents, usedforsecurity=False).hexdigest()}"


def _says(warehouse: Warehouse, path: str, contents: bytes) -> bool:
    try:
        return warehouse.storage.read_bytes(path) == contents
    except FileNotFoundError:
        return False


def _present(warehouse: Warehouse, folder: str) -> Present:
    return {file.path: file.checksum for file in warehouse.all_files(folder)}


def _names(warehouse: Warehouse, folder: str) -> set[str]:
    return {file.path for file in warehouse.all_files(folder)}


def _lot(lot: str | None) -> str:
    return f"lot={NO_LOT if lot is None else encode_segment(lot)}"
