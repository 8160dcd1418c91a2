"""The values of Iceberg's partitions: days and microseconds since 1970 in the metadata, dates and times in this package."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, date, datetime, timedelta
from typing import Any, Final

from pyiceberg.types import DateType, PrimitiveType, TimestamptzType

from databuild_dagster.features.tables.iceberg_manifests import Values
from databuild_dagster.features.tables.port import Partition

_EPOCH_DAY: Final = date(1970, 1, 1)
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


def stored(partition: Partition) -> Values:
    """The values of a partition as the metadata has them."""
    return tuple(map(_stored_value, partition))


def _stored_value(value: date | datetime | str) -> Any:
    if isinstance(value, datetime):
        return (value - _EPOCH) // timedelta(microseconds=1)
    return (value - _EPOCH_DAY).days if isinstance(value, date) else value


def typed(values: Values, types: Sequence[PrimitiveType]) -> Partition:
    """The partition of values in the metadata; `types` are those of the partition columns."""
    return tuple(_typed_value(value, kind) for value, kind in zip(values, types, strict=True))


def _typed_value(value: Any, kind: PrimitiveType) -> date | datetime | str:
    if isinstance(kind, DateType):
        return _EPOCH_DAY + timedelta(days=value)
    if isinstance(kind, TimestamptzType):
        return _EPOCH + timedelta(microseconds=value)
    return str(value)
