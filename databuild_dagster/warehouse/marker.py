"""The marker of a warehouse's root names the store that owns the root: its id and its place (rule 3.11)."""

from __future__ import annotations

from typing import NamedTuple

import msgspec

from databuild_dagster.warehouse.layout import Warehouse

#: In the root itself, where no asset has a folder: encoded names do not begin with a dot.
MARKER_NAME = ".databuild.json"


class Marker(NamedTuple):
    """The store that owns a root."""

    store_id: str
    place: str


#: The marker of a file that cannot be read.
UNREADABLE = Marker("", "unreadable")


def marker_of(warehouse: Warehouse) -> Marker | None:
    """The marker of a root; None if it has none. Raises `DiskTrouble`, `StorageTrouble`."""
    try:
        contents = warehouse.storage.read_bytes(_path(warehouse))
    except FileNotFoundError:
        return None
    try:
        return Marker(**msgspec.json.decode(contents, type=dict[str, str]))
    except (msgspec.DecodeError, UnicodeDecodeError, TypeError):
        return UNREADABLE


def make_marker(warehouse: Warehouse, marker: Marker) -> bool:
    """Mark a root that has no marker; False if it has one. Raises `DiskTrouble`, `StorageTrouble`."""
    return warehouse.storage.create_only(_path(warehouse), _contents(marker))


def replace_marker(warehouse: Warehouse, marker: Marker) -> None:
    """Mark a root whether it has a marker or not. Raises `DiskTrouble`, `StorageTrouble`."""
    warehouse.storage.replace(_path(warehouse), _contents(marker))


def _path(warehouse: Warehouse) -> str:
    return f"{warehouse.root}/{MARKER_NAME}"


def _contents(marker: Marker) -> bytes:
    return msgspec.json.format(msgspec.json.encode(marker._asdict()), indent=1) + b"\n"
