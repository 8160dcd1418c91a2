"""Dagster's time partitions and lots, both ways (rule 10.1)."""

from __future__ import annotations

from datetime import UTC, datetime

import dagster as dg
import pytest
from hypothesis import given
from hypothesis import strategies as st

from databuild_dagster.bindings.registry.lot_partitions import LotKeys, NoLotKey, lot_keys_if_any
from databuild_dagster.bindings.registry.registration import partitions_text
from databuild_dagster.model.datasets import DatasetSpec
from databuild_dagster.model.lots import InvalidLotRange, Lot, LotRange, TooManyLots

MINUTES = "%Y-%m-%d-%H:%M"


def flights(partitions: dg.PartitionsDefinition | None) -> DatasetSpec:
    return DatasetSpec("flights", "flights", "here", partitions=partitions_text(partitions))


def lots_of(partitions: dg.PartitionsDefinition | None) -> LotKeys:
    keys = lot_keys_if_any(flights(partitions))
    assert keys is not None
    return keys


def every(schedule: str, start: str = "2024-01-01-00:00", fmt: str = MINUTES, **more: object) -> LotKeys:
    return lots_of(dg.TimeWindowPartitionsDefinition(start=start, fmt=fmt, cron_schedule=schedule, **more))


def at(text: str) -> float:
    return datetime.fromisoformat(text).timestamp()


FORMATS = (
    every("*/5 * * * *"),
    every("*/5 * * * *", start="20240101T000000Z", fmt="%Y%m%dT%H%M%SZ"),
    every("0 * * * *", start="00:00 01.01.2024", fmt="%H:%M %d.%m.%Y"),
    lots_of(dg.DailyPartitionsDefinition("2024-01-01")),
)


@pytest.mark.parametrize(
    ("schedule", "unit"),
    [
        ("*/5 * * * *", "PT5M"),
        ("0/5 * * * *", "PT5M"),
        ("0,5,10,15,20,25,30,35,40,45,50,55 * * * *", "PT5M"),
        ("*/10 * * * *", "PT10M"),
        ("*/15 * * * *", "PT15M"),
        ("0,15,30,45 */1 * * *", "PT15M"),
        ("0 * * * *", "PT1H"),
        ("@hourly", "PT1H"),
        ("0 0 * * *", "P1D"),
        ("@daily", "P1D"),
    ],
)
def test_a_schedule_has_the_unit_whose_lots_begin_when_it_says(schedule: str, unit: str) -> None:
    assert every(schedule).unit.token == unit


@pytest.mark.parametrize(
    ("keys", "key", "lot"),
    [
        (every("*/5 * * * *"), "2024-02-29-23:55", "20240229PT5M287"),
        (every("*/15 * * * *", fmt="%Y%m%dT%H%MZ", start="20240101T0000Z"), "20240229T1230Z", "20240229PT15M050"),
        (every("0 * * * *", start="1969-01-01-00:00"), "1969-12-31-23:00", "19691231PT1H023"),
        (lots_of(dg.DailyPartitionsDefinition("2024-01-01")), "2024-02-29", "20240229P1D000"),
        (lots_of(dg.DailyPartitionsDefinition("01.01.2024", fmt="%d.%m.%Y")), "29.02.2024", "20240229P1D000"),
        (lots_of(dg.DailyPartitionsDefinition("2024-01-01", timezone="Etc/UTC")), "2024-02-29", "20240229P1D000"),
    ],
)
def test_a_partition_key_is_a_lot_and_back(keys: LotKeys, key: str, lot: str) -> None:
    assert str(keys.lot_of(key)) == lot
    assert keys.key_of(Lot.parse(lot)) == key


def test_every_partition_that_dagster_has_is_a_lot() -> None:
    partitions = dg.HourlyPartitionsDefinition("2024-02-28-00:00", end_date="2024-03-02-00:00")
    keys = lots_of(partitions)

    lots = keys.existing(at("2025-01-01T00:00Z"))

    assert [keys.key_of(lot) for lot in lots] == partitions.get_partition_keys()
    assert [keys.lot_of(key) for key in partitions.get_partition_keys()] == list(lots)


def test_lots_exist_from_the_first_whole_window_up_to_the_last_that_has_passed() -> None:
    lots = every("*/5 * * * *", start="2024-01-01-00:02").existing(at("2024-01-01T00:19:59Z"))

    assert list(lots.ids()) == ["20240101PT5M001", "20240101PT5M002"]


def test_no_lot_exists_before_the_definition_begins() -> None:
    assert list(every("0 * * * *").existing(at("2023-12-31T23:00Z"))) == []


@pytest.mark.parametrize(
    "partitions",
    [
        None,
        dg.StaticPartitionsDefinition(["a", "b"]),
        dg.DynamicPartitionsDefinition(name="some"),
        dg.MonthlyPartitionsDefinition("2024-01-01"),
        dg.HourlyPartitionsDefinition("2024-01-01-00:00", minute_offset=15),
        dg.DailyPartitionsDefinition("2024-01-01", hour_offset=6),
        dg.DailyPartitionsDefinition("2024-01-01", timezone="Europe/Berlin"),
        dg.TimeWindowPartitionsDefinition(start="2024-01-01-00:00", fmt=MINUTES, cron_schedule="*/20 * * * *"),
        dg.TimeWindowPartitionsDefinition(start="2024-01-01", fmt="%Y-%m-%d", cron_schedule="0 * * * *"),
        dg.MultiPartitionsDefinition(
            {"day": dg.DailyPartitionsDefinition("2024-01-01"), "city": dg.StaticPartitionsDefinition(["b"])}
        ),
    ],
)
def test_partitions_that_are_no_utc_day_hour_or_minutes_have_no_lot_ids(
    partitions: dg.PartitionsDefinition | None,
) -> None:
    assert lot_keys_if_any(flights(partitions)) is None


@pytest.mark.parametrize(
    ("key", "why"),
    [
        ("2024-2-29-00:05", "it is written 2024-02-29-00:05"),
        ("2023-02-29-00:05", "it is no time in the form 2024-01-01-00:00"),
        ("2024-02-29-00:07", "no lot of PT5M begins there"),
        ("2024-02-29", "it is no time in the form"),
        ("20240229PT5M001", "it is no time in the form"),
    ],
)
def test_what_is_no_key_of_a_lot_says_why(key: str, why: str) -> None:
    with pytest.raises(NoLotKey) as refused:
        every("*/5 * * * *").lot_of(key)

    assert why in refused.value.message
    assert refused.value.advice == "Its partition keys look like 2024-01-01-00:00, its lots like 20240101PT5M000."


def test_a_lot_of_another_unit_has_no_key() -> None:
    with pytest.raises(NoLotKey, match="it is one of PT1H, and flights has lots of PT5M"):
        every("*/5 * * * *").key_of(Lot.parse("20240229PT1H000"))


@pytest.mark.parametrize(("fmt", "in_order"), [(MINUTES, True), ("%Y%m%dT%H%M%SZ", True), ("%d.%m.%Y %H:%M", False)])
def test_it_is_known_whether_keys_sort_as_their_times_do(fmt: str, in_order: bool) -> None:
    start = datetime(2024, 1, 1, tzinfo=UTC).strftime(fmt)

    assert every("0 * * * *", start=start, fmt=fmt).in_order is in_order


@given(st.integers(19_000, 19_100), st.integers(0, 287), st.integers(0, 1_000), st.sampled_from(FORMATS))
def test_many_keys_in_a_row_are_those_of_each(day: int, number: int, n: int, keys: LotKeys) -> None:
    first = day * keys.unit.per_day + number
    lots = LotRange(keys.unit, first, first + n)

    assert keys.keys_of(lots) == [keys.key_of(lot) for lot in lots]


# What is expected of a range

NOW = at("2025-01-01T00:00Z")
HOURS = lots_of(dg.HourlyPartitionsDefinition("2024-02-28-00:00", end_date="2024-03-01-00:00"))


def test_without_ends_all_that_exists_is_expected_each_with_its_ref() -> None:
    found = HOURS.expected(NOW)

    assert (len(found.ids), found.n_outside) == (48, 0)
    assert (found.ids[-1], found.refs[-1]) == ("20240229PT1H023", "flights@2024-02-29-23:00")


def test_what_the_cadence_does_not_reach_is_counted_and_not_expected() -> None:
    found = HOURS.expected(NOW, at("2024-02-27T22:30Z"), at("2024-02-28T01:59Z"))

    assert (found.ids, found.n_outside) == (["20240228PT1H000"], 2)


def test_a_range_that_the_cadence_does_not_reach_expects_nothing() -> None:
    for start, end in (("2023-01-01T00:30Z", "2023-01-02T00:00Z"), ("2024-05-01T00:00Z", "2024-05-01T05:00Z")):
        found = HOURS.expected(NOW, at(start), at(end))

        assert (list(found.ids), list(found.refs), found.start) == ([], [], found.end)
        assert found.n_outside > 0


def test_what_the_definition_leaves_out_is_not_expected() -> None:
    keys = every("0 0 * * *", start="2024-01-01", fmt="%Y-%m-%d", exclusions=[datetime(2024, 1, 2, tzinfo=UTC)])

    found = keys.expected(NOW, at("2024-01-01T00:00Z"), at("2024-01-04T00:00Z"))

    assert found.ids == ["20240101P1D000", "20240103P1D000"]
    assert found.refs == ["flights@2024-01-01", "flights@2024-01-03"]


def test_a_range_within_one_lot_is_refused_unless_touched_lots_count() -> None:
    start, end = at("2024-02-28T03:10Z"), at("2024-02-28T03:20Z")

    with pytest.raises(InvalidLotRange, match="both ends are in the lot 20240228PT1H003"):
        HOURS.expected(NOW, start, end)

    assert HOURS.expected(NOW, start, end, touched=True).ids == ["20240228PT1H003"]


def test_more_lots_than_a_report_has_are_refused() -> None:
    with pytest.raises(TooManyLots, match="more than 1,000,000"):
        every("*/5 * * * *", start="2000-01-01-00:00").expected(NOW)
