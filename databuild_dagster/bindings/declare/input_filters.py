"""Inputs with a filter: of an upstream the function gets only the rows that a condition lets through (SPEC 9.8).

The author says it in `ins`, as `AssetIn(metadata={"where": "carrier = 'AA'"})`. Of what is read it narrows the rows and, where
there is an index, the files; lineage knows nothing of it, for the whole instance is the input.
"""

from collections.abc import Iterable, Mapping
from typing import Any, Final

from dagster import AssetIn

from databuild_dagster.bindings.declare.parameters import InvalidAsset
from databuild_dagster.warehouse.file_index import FilesRead
from databuild_dagster.warehouse.filters import BadFilter, parsed_filter

#: In the metadata of an `AssetIn`.
WHERE: Final = "where"
#: On a materialization: input to how many files of how many were read.
FILES_READ: Final = "databuild/files_read"


def filters_of(asset_name: str, ins: Mapping[str, AssetIn]) -> dict[str, str]:
    """Parameter to its condition, for those that have one. Raises `InvalidAsset`."""
    return {
        parameter: _checked(asset_name, parameter, given.metadata[WHERE])
        for parameter, given in ins.items()
        if given.metadata is not None and WHERE in given.metadata
    }


def _checked(asset_name: str, parameter: str, where: Any) -> str:
    if not isinstance(where, str):
        raise InvalidAsset(
            f"ins of asset {asset_name!r} filters {parameter!r} by {where!r}; "
            "write a condition of Spark's SQL as text, as in metadata={'where': \"carrier = 'AA'\"}."
        )
    try:
        parsed_filter(where)
    except BadFilter as bad:
        raise InvalidAsset(f"ins of asset {asset_name!r}, input {parameter!r}: {bad}") from bad
    return where


def summed(counts: Iterable[FilesRead]) -> FilesRead:
    """Of all of them together."""
    found = list(counts)
    return FilesRead(sum(each.files for each in found), sum(each.of for each in found))


class FilesReadOfStep:
    """How many files of each filtered input were read for each partition of one step; written by many threads."""

    def __init__(self) -> None:
        self._by_key: dict[str | None, dict[str, str]] = {}

    def note(self, partition_key: str | None, parameter: str, read: FilesRead) -> None:
        """A partition that is tried again in the same step is read again, and the last word counts."""
        self._by_key.setdefault(partition_key, {})[parameter] = f"{read.files} of {read.of}"

    def metadata(self, partition_key: str | None) -> dict[str, Any]:
        """For the materialization; nothing where no input has a filter."""
        read = self._by_key.get(partition_key)
        return {FILES_READ: dict(sorted(read.items()))} if read else {}
