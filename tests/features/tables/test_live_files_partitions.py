"""A partition key becomes the typed values of the partition columns."""

from __future__ import annotations

from datetime import UTC, date, datetime

import pytest

from databuild_dagster.features.tables.errors import KeyWithoutValue
from databuild_dagster.features.tables.live_files import values_of
from databuild_dagster.model.datasets import PartitionColumn, PartitionType

DAY = PartitionColumn("day", PartitionType.DATE, "%Y-%m-%d")
HOUR = PartitionColumn("hour", PartitionType.TIMESTAMP, "%Y-%m-%d-%H:%M", "Europe/Berlin")
TEXT = PartitionColumn("shop")


@pytest.mark.parametrize(
    ("columns", "key", "values"),
    [
        ((), None, ()),
        ((DAY,), "2024-02-29", (date(2024, 2, 29),)),
        ((HOUR,), "2024-07-01-02:00", (datetime(2024, 7, 1, 0, tzinfo=UTC),)),
        ((HOUR,), "2024-10-27-02:00", (datetime(2024, 10, 27, 0, tzinfo=UTC),)),
        ((HOUR,), "2024-10-27-02:00+0200", (datetime(2024, 10, 27, 0, tzinfo=UTC),)),
        ((HOUR,), "2024-10-27-02:00+0100", (datetime(2024, 10, 27, 1, tzinfo=UTC),)),
        ((TEXT,), "a|b", ("a|b",)),
        ((DAY, TEXT), "2024-01-01|a|b", (date(2024, 1, 1), "a|b")),
    ],
)
def test_a_key_has_one_value_per_column(columns: tuple[PartitionColumn, ...], key: str | None, values: object) -> None:
    assert values_of("sales", columns, key) == values


def test_a_key_that_is_no_time_is_refused() -> None:
    with pytest.raises(KeyWithoutValue, match="'2024' of sales is no date by the format '%Y-%m-%d'"):
        values_of("sales", (DAY,), "2024")
