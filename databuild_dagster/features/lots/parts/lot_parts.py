"""The declaration of a lot's parts, checked at import (rule 10.4)."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date, datetime
from decimal import Decimal
from typing import Any, Final

from databuild_dagster.bindings.declare.parameters import InvalidAsset, Parameter
from databuild_dagster.model.lots import MAX_PARTS

#: The types of a part's key. Values of other types have several spellings or orders; convert them to such a type.
_KEYS: Final = (str, int, bool, date, Decimal)


@dataclass(frozen=True, slots=True)
class ByFile:
    """A call for each of `parts` groups of the input's files, of about the same size; fewer if there are fewer files.

    `input` is the name of a DataFrame parameter. `at_once` parts run at a time, by default one per thread of the launch.
    """

    input: str
    parts: int
    at_once: int | None = None


@dataclass(frozen=True, slots=True)
class ByKey:
    """A call for each value of a column of the input, also for null, or for each of `values`.

    `input` is the name of a DataFrame parameter. Rows with none of the given `values` are in no part. `at_once` parts run
    at a time, by default one per thread of the launch.
    """

    input: str
    column: str
    values: Sequence[Any] | None = None
    at_once: int | None = None


PartSplit = ByFile | ByKey


def split_of(asset_name: str, parts: Any, parameters: Sequence[Parameter], batched: bool) -> PartSplit | None:
    """The checked split of an asset's lots, None without a split. Raises `InvalidAsset`."""
    if parts is None:
        return None
    if not isinstance(parts, ByFile | ByKey):
        raise InvalidAsset(
            f"parts of asset {asset_name!r} is {parts!r}; give ByFile('input', parts=8) or ByKey('input', 'column')."
        )
    if batched:
        raise InvalidAsset(
            f"Asset {asset_name!r} has parts=, which divides one partition, and batched=True, which takes many together; "
            "leave one of them out."
        )
    inputs = [parameter.name for parameter in parameters if parameter.kind.is_input]
    if parts.input not in inputs:
        raise InvalidAsset(
            f"parts of asset {asset_name!r} names {parts.input!r}, which is not a DataFrame parameter of it; "
            f"name one of these: {', '.join(inputs) or '(none)'}."
        )
    if parts.at_once is not None:
        _check_number(asset_name, "at_once", parts.at_once)
    if isinstance(parts, ByFile):
        _check_number(asset_name, "parts", parts.parts)
    else:
        _check_keys(asset_name, parts)
    return parts


def refuse_parts(asset_name: str, n_outputs: int, parts: Any) -> None:
    """Raises `InvalidAsset` for a multi-asset with parts: a part of an output would need parts of every other output."""
    if parts is not None:
        raise InvalidAsset(
            f"Multi-asset {asset_name!r} has parts=, which only an asset alone may have; "
            "write a @databuild_asset for the one that is built in parts."
        )


def text_of_key(value: Any) -> str:
    """The text of a key for people."""
    if value is None:
        return "null"
    return repr(value) if value in ("", "null") else str(value)


def why_no_key(value: Any) -> str | None:
    """Why a value cannot be the key of a part, None if it can."""
    if value is None or (isinstance(value, _KEYS) and not isinstance(value, datetime)):
        return None
    return f"{type(value).__name__}s are not keys of parts; text, whole numbers, booleans, dates and decimals are"


def _check_number(asset_name: str, option: str, value: Any) -> None:
    if not isinstance(value, int) or isinstance(value, bool) or not 1 <= value <= MAX_PARTS:
        raise InvalidAsset(
            f"{option} in parts= of asset {asset_name!r} is {value!r}; give a whole number from 1 to {MAX_PARTS:,}."
        )


def _check_keys(asset_name: str, parts: ByKey) -> None:
    where = f"parts of asset {asset_name!r}"
    column: Any = parts.column
    if not isinstance(column, str) or not column:
        raise InvalidAsset(f"{where} splits by {column!r}; name a column of {parts.input!r}.")
    if parts.values is None:
        return
    values = None if isinstance(parts.values, str) else list(parts.values)
    if not values:
        raise InvalidAsset(f"{where} gives the values {parts.values!r}; list at least one, or leave values out.")
    if len(values) > MAX_PARTS:
        raise InvalidAsset(f"{where} gives {len(values):,} values; there may be {MAX_PARTS:,} parts; give fewer.")
    for value in values:
        if why := why_no_key(value):
            raise InvalidAsset(f"{where} gives the value {value!r}: {why}.")
    if len({type(value) for value in values if value is not None}) > 1:
        raise InvalidAsset(f"{where} gives values of several types; the values of a column have one type.")
    if repeated := [value for value in values if values.count(value) > 1]:
        raise InvalidAsset(f"{where} gives the value {repeated[0]!r} twice; give it once.")
