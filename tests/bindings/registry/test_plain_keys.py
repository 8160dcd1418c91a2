"""Keys that are computed without Dagster are the keys that Dagster computes."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import dagster as dg
import pytest
from dagster import partition_loading_context
from hypothesis import given, settings
from hypothesis import strategies as st

from databuild_dagster.bindings.registry.plain_keys import last_window, plain_keys
from databuild_dagster.bindings.registry.registration import partitions_text

FIXED = ["*/5 * * * *", "*/15 * * * *", "0 * * * *", "20 * * * *", "0 0 * * *", "30 6 * * *"]
MIDNIGHTS = ["0 0 * * *", "0 0 * * 0", "0 0 * * 3", "0 0 1 * *", "0 0 15 * *"]
few_days = st.datetimes(datetime(2024, 1, 1), datetime(2024, 1, 4), timezones=st.just(UTC))
moments = st.datetimes(datetime(2024, 1, 1), datetime(2024, 4, 15), timezones=st.just(UTC))


def windows(cron: str, start: datetime, end: datetime | None, zone: str, fmt: str) -> dg.TimeWindowPartitionsDefinition:
    return dg.TimeWindowPartitionsDefinition(start=start, end=end, cron_schedule=cron, timezone=zone, fmt=fmt)


@settings(max_examples=60, deadline=None)
@given(st.sampled_from(FIXED), few_days, st.none() | few_days, few_days)
def test_windows_of_one_length_in_utc(cron, start, end, now):
    same_as_dagster(windows(cron, start, end, "UTC", "%Y-%m-%d-%H:%M"), now)


@settings(max_examples=60, deadline=None)
@given(
    st.sampled_from(MIDNIGHTS),
    moments,
    st.none() | moments,
    moments,
    st.sampled_from(["UTC", "Europe/Berlin", "Asia/Tokyo"]),
)
def test_days_weeks_and_months_in_a_time_zone(cron, start, end, now, zone):
    same_as_dagster(windows(cron, start, end, zone, "%Y-%m-%d"), now)


def test_static_keys_and_dimensions():
    days = dg.DailyPartitionsDefinition("2024-01-01")
    keys = dg.StaticPartitionsDefinition(["b", "a"])
    now = datetime(2024, 1, 4, 12, tzinfo=UTC)

    assert plain_keys(partitions_text(keys), now.timestamp()) == ["b", "a"]
    assert plain_keys(partitions_text(days), now.timestamp()) == ["2024-01-01", "2024-01-02", "2024-01-03"]
    same_as_dagster(dg.MultiPartitionsDefinition({"z": keys, "day": days}), now)


@pytest.mark.parametrize(
    "partitions",
    [
        dg.DynamicPartitionsDefinition(name="customers"),
        dg.HourlyPartitionsDefinition("2024-01-01-00:00", timezone="Australia/Lord_Howe"),
        dg.DailyPartitionsDefinition("2024-01-01", exclusions=["0 0 * * 5#2"]),
        windows("0 0 L * *", datetime(2024, 1, 1), None, "UTC", "%Y-%m-%d"),
        windows("0 0 29 2 *", datetime(2024, 1, 1), None, "UTC", "%Y-%m-%d"),
        windows("0 9 * * 5-7", datetime(2024, 1, 1), None, "UTC", "%Y-%m-%d"),
    ],
)
def test_every_other_definition_is_left_to_dagster(partitions):
    text = partitions_text(partitions)

    assert plain_keys(text, datetime(2024, 2, 1, tzinfo=UTC).timestamp()) is None


def same_as_dagster(partitions: dg.PartitionsDefinition, now: datetime) -> None:
    for moment in (now, now + timedelta(microseconds=1)):
        with partition_loading_context(effective_dt=moment):
            expected = list(partitions.get_partition_keys())
        found = plain_keys(partitions_text(partitions), moment.timestamp())
        assert found == expected or (found is None and len(expected) <= 1)


@settings(max_examples=60, deadline=None)
@given(st.sampled_from(FIXED), few_days, st.none() | few_days, few_days, few_days)
def test_with_the_same_last_window_the_same_keys_exist(cron, start, end, now, other):
    text = partitions_text(windows(cron, start, end, "UTC", "%Y-%m-%d-%H:%M"))

    lasts = [last_window(text, moment.timestamp()) for moment in (now, other)]

    keys = [plain_keys(text, moment.timestamp()) for moment in (now, other)]
    assert lasts == [None if not found else lasts[place] for place, found in enumerate(keys)]
    assert (lasts[0] == lasts[1]) == (keys[0] == keys[1])
