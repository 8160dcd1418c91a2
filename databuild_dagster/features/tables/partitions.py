"""From the partition key of a ref to the values of a table's partition columns."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, date, datetime
from functools import lru_cache
from zoneinfo import ZoneInfo

from databuild_dagster.features.tables.errors import KeyWithoutValue
from databuild_dagster.features.tables.port import Partition
from databuild_dagster.model.datasets import PartitionColumn, PartitionType

#: Between the dimensions of a multi-partition key.
BETWEEN_DIMENSIONS = "|"
#: Keys of hours that a change of the clocks repeats end with their offset.
_OFFSET = "%z"
_MAX_ZONES = 64


def values_of(asset: str, columns: Sequence[PartitionColumn], key: str | None) -> Partition:
    """The values of a key, one per column. Raises `KeyWithoutValue`."""
    if not columns:
        return ()
    assert key is not None, f"{asset} has partitions"
    parts = [key] if len(columns) == 1 else key.split(BETWEEN_DIMENSIONS, len(columns) - 1)
    return tuple(_value(asset, column, part) for column, part in zip(columns, parts, strict=True))


def _value(asset: str, column: PartitionColumn, part: str) -> date | datetime | str:
    if column.type is PartitionType.STRING:
        return part
    at = _time(column.format, part)
    if at is None:
        raise KeyWithoutValue(asset=asset, key=part, type=column.type.value, format=column.format)
    if column.type is PartitionType.DATE:
        return at.date()
    return (at if at.tzinfo is not None else at.replace(tzinfo=_zone(column.timezone))).astimezone(UTC)


def _time(format: str, part: str) -> datetime | None:
    for candidate in (format, format + _OFFSET):
        try:
            return datetime.strptime(part, candidate)
        except ValueError:
            continue
    return None


@lru_cache(maxsize=_MAX_ZONES)
def _zone(name: str) -> ZoneInfo:
    return ZoneInfo(name)
