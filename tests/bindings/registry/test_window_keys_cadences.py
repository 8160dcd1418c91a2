"""Every definition in time has lots: with lot ids in UTC, by partition keys otherwise (rule 10.1)."""

from __future__ import annotations

import dagster as dg
import pytest

from databuild_dagster.bindings.registry.registration import partitions_text
from databuild_dagster.bindings.registry.window_keys import NoLots, lots_if_any, lots_of
from databuild_dagster.model.datasets import DatasetSpec

NOW = 1_710_000_000.0  # 2024-03-09T16:00:00Z


def flights(partitions: dg.PartitionsDefinition | None) -> DatasetSpec:
    return DatasetSpec("flights", "flights", "here", partitions=partitions_text(partitions))


@pytest.mark.parametrize(
    ("partitions", "first"),
    [
        (dg.DailyPartitionsDefinition("2024-01-01"), "20240101P1D000"),
        (dg.DailyPartitionsDefinition("2024-01-01", timezone="Europe/Berlin"), "2024-01-01"),
        (dg.DailyPartitionsDefinition("2024-01-01", hour_offset=6), "2024-01-01"),
        (dg.WeeklyPartitionsDefinition("2024-01-01"), "2024-01-07"),
        (dg.MonthlyPartitionsDefinition("2024-01-01"), "2024-01-01"),
    ],
)
def test_a_lot_is_named_by_its_id_or_else_by_its_key(partitions, first) -> None:
    lots = lots_of(flights(partitions))

    ids = lots.expected(NOW).ids

    assert ids[0] == first
    assert lots.name_of(partitions.get_first_partition_key() or "") == first


@pytest.mark.parametrize(
    ("partitions", "why"),
    [
        (None, "it has no partitions"),
        (dg.StaticPartitionsDefinition(["a", "b"]), "its partitions are no intervals of time"),
        (
            dg.TimeWindowPartitionsDefinition(start="2024-01-01", fmt="%Y-%m-%d", cron_schedule="0 * * * *"),
            "its key format '%Y-%m-%d' gives several lots of PT1H the same key",
        ),
        (
            dg.MultiPartitionsDefinition(
                {"day": dg.DailyPartitionsDefinition("2024-01-01"), "city": dg.StaticPartitionsDefinition(["b"])}
            ),
            "a partition of several dimensions is not one interval",
        ),
    ],
)
def test_a_dataset_without_lots_says_why(partitions: dg.PartitionsDefinition | None, why: str) -> None:
    with pytest.raises(NoLots) as refused:
        lots_of(flights(partitions))

    assert refused.value.message == f"flights has no lots: {why}."
    assert lots_if_any(flights(partitions)) is None
