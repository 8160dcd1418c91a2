"""From a pattern to files outside of any warehouse, and to their entries in a manifest.

Other programs own these files: databuild lists and describes them, and never moves, copies or removes them."""

from __future__ import annotations

import os
from collections.abc import Sequence
from hashlib import sha256
from typing import TYPE_CHECKING, NamedTuple
from unicodedata import category

from databuild_dagster.warehouse import errors, formats, storage
from databuild_dagster.warehouse.files import checksum_of_other
from databuild_dagster.warehouse.manifest import FileEntry

if TYPE_CHECKING:
    import pyarrow as pa


class OutsideFile(NamedTuple):
    """A file and its own schema."""

    entry: FileEntry
    schema: pa.Schema


def whole_pattern(pattern: str) -> str:
    """The pattern as an absolute path; a url is returned unchanged, `file://` is a path."""
    if pattern.startswith("file://"):
        pattern = pattern.removeprefix("file://")
    if storage.protocol_of(pattern) is not None:
        return pattern
    return os.path.abspath(os.path.expanduser(pattern))


def find_files(pattern: str) -> list[tuple[str, int]]:
    """The matching data files, sorted, each with its bytes. Raises `StorageTrouble`, `StorageLibraryMissing`."""
    return storage.storage_at(pattern).find(pattern)


def describe_each(
    files: Sequence[tuple[str, int]], file_format: formats.FileFormat = formats.WRITTEN
) -> list[OutsideFile | errors.UnreadableFile]:
    """Rows, columns and checksum of each file, or its error. Raises `StorageTrouble`, `DiskTrouble`."""

    def describe(file: tuple[str, int]) -> OutsideFile | errors.UnreadableFile:
        path, size_bytes = file
        try:
            with storage.storage_at(path).open_binary(path) as opened:
                found_bytes = opened.seek(0, os.SEEK_END)
                if found_bytes != size_bytes:
                    return errors.UnreadableFile(path=path, why="it is being written to")
                opened.seek(0)
                facts = file_format.describe(opened, path)
            # The footer of a rewritten file may be the same: it has only counts, and the smallest and largest values.
            checksum = checksum_of_other(path)
        except FileNotFoundError:
            return errors.UnreadableFile(path=path, why="it is not there any more")
        except errors.UnreadableFile as error:
            return error
        return OutsideFile(FileEntry(path, size_bytes, facts.rows, checksum), facts.schema)

    return storage.storage_at(files[0][0]).for_each(describe, files) if files else []


def is_no_url(path: str) -> bool:
    """Whether readers of Iceberg open another file for a path or url: they take `#` and `?` for its end, and know no controls."""
    return any(character in "#?" or category(character) == "Cc" for character in path)


def fingerprint_of(files: Sequence[FileEntry]) -> str:
    """A text that changes when a file comes, goes or changes."""
    text = "\n".join(sorted(f"{file.uri} {file.bytes} {file.checksum}" for file in files))
    return sha256(text.encode()).hexdigest()[:16]
