"""Lot ids, strict both ways, and the intervals they stand for (rule 10.1)."""

from __future__ import annotations

from datetime import UTC, date, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from databuild_dagster.model.errors import Refused
from databuild_dagster.model.lots import (
    DAY_SECONDS,
    END_SECOND,
    FIRST_SECOND,
    UNITS,
    InvalidLot,
    InvalidLotRange,
    InvalidMoment,
    Lot,
    LotUnit,
    date_of,
    day_number,
    lot_at,
    lots_between,
)

FIVE, TEN, FIFTEEN, HOUR, DAY = UNITS.values()
units = st.sampled_from(list(UNITS.values()))
moments = st.integers(FIRST_SECOND, END_SECOND - 1)


def at(text: str) -> float:
    return datetime.fromisoformat(text).timestamp()


def lots_at(text: str, *units: LotUnit) -> list[str]:
    return [str(lot_at(at(text), unit)) for unit in units]


@pytest.mark.parametrize(
    ("moment", "lots"),
    [
        ("2023-02-06T23:52:06.5Z", ["20230206PT15M095", "20230206PT10M143", "20230206PT5M286"]),
        ("2023-01-01T00:04:59.999Z", ["20230101PT15M000", "20230101PT10M000", "20230101PT5M000"]),
        ("2023-01-01T00:05:00Z", ["20230101PT15M000", "20230101PT10M000", "20230101PT5M001"]),
        ("2023-01-01T04:10Z", ["20230101PT15M016", "20230101PT10M025", "20230101PT5M050"]),
        ("2023-02-27T23:59:59.999Z", ["20230227PT15M095", "20230227PT10M143", "20230227PT5M287"]),
        ("2024-02-29T12:34:56Z", ["20240229PT15M050", "20240229PT10M075", "20240229PT5M150"]),
        ("1969-12-31T23:59:59Z", ["19691231PT15M095", "19691231PT10M143", "19691231PT5M287"]),
    ],
)
def test_a_moment_is_in_one_lot_of_each_unit(moment: str, lots: list[str]) -> None:
    assert lots_at(moment, FIFTEEN, TEN, FIVE) == lots


# The vectors of rule 10.1


@pytest.mark.parametrize("day", ["20230101", "20240229", "19691231", "00010101", "99991231"])
@pytest.mark.parametrize("unit", UNITS.values(), ids=str)
def test_every_number_of_every_unit_goes_both_ways(unit: LotUnit, day: str) -> None:
    midnight = datetime.strptime(day, "%Y%m%d").replace(tzinfo=UTC)
    ids = [f"{day}{unit}{number:03}" for number in range(unit.per_day)]

    lots = [Lot.parse(text) for text in ids]

    assert [str(lot) for lot in lots] == ids
    assert [lot.start for lot in lots] == [midnight.timestamp() + n * unit.seconds for n in range(unit.per_day)]
    assert [lot_at(lot.start, unit) for lot in lots] == lots
    assert [lot_at(lot.end - 0.001, unit) for lot in lots] == lots


# What holds at any time


@given(moments, units)
def test_a_moment_is_within_its_lot_and_the_id_names_it(moment: int, unit: LotUnit) -> None:
    lot = lot_at(moment, unit)

    assert lot.start <= moment < lot.end
    assert Lot.parse(str(lot)) == lot
    assert lot_at(lot.start, unit) == lot


@given(moments, units)
def test_lots_follow_one_another_without_a_hole(moment: int, unit: LotUnit) -> None:
    lot = lot_at(moment, unit)

    if lot.end < END_SECOND:
        following = lot_at(lot.end, unit)
        assert following.start == lot.end
        assert str(following) > str(lot)


@given(st.dates())
def test_dates_are_those_of_the_calendar(day: date) -> None:
    number = (day - date(1970, 1, 1)).days

    assert day_number(day.year, day.month, day.day) == number
    assert date_of(number) == (day.year, day.month, day.day)


@given(st.text(max_size=20) | st.from_regex(r"[0-9]{8}(PT5M|PT1H|P1D|pt5m|P)[0-9]{2,4}", fullmatch=True))
def test_a_text_is_the_id_of_what_it_parses_to_or_is_refused(text: str) -> None:
    try:
        lot = Lot.parse(text)
    except InvalidLot as refused:
        assert refused.message.startswith(f"{text!r} is not a lot id: ")
    else:
        assert str(lot) == text


@given(moments, st.integers(0, 3 * DAY_SECONDS), units)
def test_a_range_holds_every_lot_once_and_its_ids_in_order(start: int, length: int, unit: LotUnit) -> None:
    lots = lots_between(start, min(start + length, END_SECOND), unit)

    assert list(lots.ids()) == [str(lot) for lot in lots]
    assert len(lots) == len(list(lots))
    assert all(lot in lots for lot in lots)


# Ranges


def test_the_ends_of_a_range_are_cut_down_to_an_interval_first() -> None:
    """Rule 10.7"""
    lots = lots_between(at("2023-02-28T23:52:59Z"), at("2023-03-01T00:09:59.9Z"), FIVE)

    assert list(lots.ids()) == ["20230228PT5M286", "20230228PT5M287", "20230301PT5M000"]
    assert (lots.start, lots.end) == (at("2023-02-28T23:50Z"), at("2023-03-01T00:05Z"))


def test_a_range_that_ends_before_it_begins_is_refused() -> None:
    with pytest.raises(InvalidLotRange, match="it ends before it begins"):
        lots_between(at("2024-03-01T00:00Z"), at("2024-02-28T00:00Z"), DAY)


# Bad input


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("20230227PT5M288", "a day has PT5M 000 to 287, and no 288"),
        ("20230227PT10M144", "a day has PT10M 000 to 143, and no 144"),
        ("20230227PT15M096", "a day has PT15M 000 to 095, and no 096"),
        ("20230227PT1H024", "a day has PT1H 000 to 023, and no 024"),
        ("20230227P1D001", "a day has P1D 000, and no 001"),
        ("20230229PT5M000", "there is no 29 February 2023"),
        ("19000229PT5M000", "there is no 29 February 1900"),
        ("20231301PT5M000", "there is no month 13"),
        ("20230001PT5M000", "there is no month 00"),
        ("20230431PT5M000", "there is no 31 April 2023"),
        ("20231232PT5M000", "there is no 32 December 2023"),
        ("20230100PT5M000", "there is no 0 January 2023"),
        ("00000101PT5M000", "there is no year 0"),
        ("20230227PT5M87", "three digits must follow PT5M, and it has '87'"),
        ("20230227PT5M0287", "three digits must follow PT5M, and it has '0287'"),
        ("20230227PT5M287 ", "three digits must follow PT5M, and it has '287 '"),
        ("20230227PT5M287\n", "three digits must follow PT5M, and it has '287\\n'"),
        ("20230227PT5M-01", "three digits must follow PT5M, and it has '-01'"),
        ("20230227pt5m287", "its unit is written in capital letters"),
        ("20230227PT5m287", "its unit is written in capital letters"),
        ("20230227PT20M000", "its date is not followed by one of the units PT5M, PT10M, PT15M, PT1H, P1D"),
        ("20230227PT60M000", "its date is not followed by one of the units PT5M, PT10M, PT15M, PT1H, P1D"),
        ("230227PT5M287", "it does not begin with a date in eight digits"),
        (" 20230227PT5M287", "it does not begin with a date in eight digits"),
        ("\u0662\u0660230227PT5M287", "it does not begin with a date in eight digits"),
        ("20230227PT5M28\u0667", "three digits must follow PT5M, and it has '28\u0667'"),
        ("", "it does not begin with a date in eight digits"),
    ],
)
def test_what_is_no_lot_id_is_refused_and_says_why(text: str, why: str) -> None:
    with pytest.raises(InvalidLot) as refused:
        Lot.parse(text)

    assert refused.value.message == f"{text!r} is not a lot id: {why}."
    assert "as in 20230227PT5M287" in refused.value.advice
    assert isinstance(refused.value, Refused)


@pytest.mark.parametrize("moment", [float("nan"), float("inf"), -float("inf"), END_SECOND, FIRST_SECOND - 1])
def test_a_moment_that_no_lot_id_can_name_is_refused(moment: float) -> None:
    with pytest.raises(InvalidMoment):
        lot_at(moment, DAY)
