"""The file formats that can be read, and the one that instances are written in.

A manifest names the format of its files: the format written today does not decide how an older instance is read.
"""

from __future__ import annotations

from databuild_dagster.warehouse.errors import UnknownFormat
from databuild_dagster.warehouse.file_format import FileFormat
from databuild_dagster.warehouse.parquet import Parquet

#: What is written. The one place where that is chosen.
WRITTEN: FileFormat = Parquet()

#: What can be read, by name.
READABLE: dict[str, FileFormat] = {WRITTEN.name: WRITTEN}


def format_named(name: str) -> FileFormat:
    """The format that a manifest names. Raises `UnknownFormat`."""
    if name not in READABLE:
        raise UnknownFormat(name=name)
    return READABLE[name]
