"""Inputs with a filter: the function gets only the rows of an upstream that meet a condition (rule 9.8).

`ins` has the condition, as `AssetIn(metadata={"where": "carrier = 'AA'"})`. It restricts the rows that are read and, with an
index, the files. Lineage does not record it, because the whole instance is the input.
"""

from collections.abc import Iterable, Mapping
from typing import Any, Final

from dagster import AssetIn

from databuild_dagster.bindings.declare.parameters import InvalidAsset
from databuild_dagster.warehouse.file_index import FilesRead
from databuild_dagster.warehouse.filters import BadFilter, parsed_filter

#: The key in the metadata of an `AssetIn`.
WHERE: Final = "where"


def filters_of(asset_name: str, ins: Mapping[str, AssetIn]) -> dict[str, str]:
    """Parameter to its condition, if it has one. Raises `InvalidAsset`."""
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
    """The sum of all counts."""
    found = list(counts)
    return FilesRead(sum(count.files for count in found), sum(count.of for count in found))
