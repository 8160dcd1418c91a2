"""Lots that no lot id names are Dagster's windows, by their partition keys (rule 10.1)."""

from __future__ import annotations

from datetime import UTC, datetime
from itertools import pairwise

import dagster as dg
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from databuild_dagster.bindings.registry.lot_partitions import NoLotKey
from databuild_dagster.bindings.registry.window_keys import WindowKeys
from databuild_dagster.model.lots import InvalidLotRange, TooManyLots

MINUTES = "%Y-%m-%d-%H:%M"
DAY = 86_400
BERLIN = "Europe/Berlin"
LORD_HOWE = "Australia/Lord_Howe"
#: Clocks that change by an hour, at midnight, by half an hour, in the other half of the year, and never, at no whole hour.
ZONES = ("UTC", BERLIN, "America/New_York", "America/Sao_Paulo", LORD_HOWE, "Africa/Cairo", "Asia/Kathmandu")
#: A schedule, the key format, and about how many days a range of it spans.
CADENCES = {
    "half hours": ("*/30 * * * *", MINUTES, 2),
    "hours": ("0 * * * *", MINUTES, 4),
    "hours from a quarter past": ("15 * * * *", MINUTES, 4),
    "days": ("0 0 * * *", "%Y-%m-%d", 60),
    "days from six": ("0 6 * * *", "%Y-%m-%d", 60),
    "days with another format": ("0 0 * * *", "%d.%m.%Y", 60),
    "working days, twice": ("0 9,17 * * 1-5", MINUTES, 30),
    "weeks from Wednesday": ("0 0 * * 3", "%Y-%m-%d", 400),
    "months": ("0 0 1 * *", "%Y-%m", 1_500),
    "months from the 15th": ("0 0 15 * *", "%Y-%m-%d", 1_500),
    "quarters": ("0 0 1 */3 *", "%Y-%m-%d", 3_000),
    "years": ("0 0 1 1 *", "%Y", 6_000),
}
MIDDAY = datetime(2011, 12, 28, 12, tzinfo=UTC).timestamp()


def lots(partitions: dg.TimeWindowPartitionsDefinition) -> WindowKeys:
    return WindowKeys("flights", partitions)


def definition(cadence: str, zone: str, start: float, end: float | None = None) -> dg.TimeWindowPartitionsDefinition:
    schedule, fmt, _ = CADENCES[cadence]
    begin, stop = (None if at is None else datetime.fromtimestamp(at, UTC).replace(tzinfo=None) for at in (start, end))
    assert begin is not None
    return dg.TimeWindowPartitionsDefinition(start=begin, end=stop, fmt=fmt, cron_schedule=schedule, timezone=zone)


def at(text: str) -> float:
    return datetime.fromisoformat(text).timestamp()


def between(keys: WindowKeys, start: str, end: str, **more: bool) -> list[str]:
    return list(keys.expected(at("2026-01-01T00:00Z"), at(start), at(end), **more).ids)


@st.composite
def ranges(draw):  # type: ignore[no-untyped-def]
    """A definition, and a range that may begin before its partitions, end after them, or have none of them in it."""
    zone, cadence = draw(st.sampled_from(ZONES)), draw(st.sampled_from(sorted(CADENCES)))
    # Dagster names the hours of Lord Howe by the first of them; a test below has them.
    assume(not (zone == LORD_HOWE and cadence.startswith("hours")))
    days = CADENCES[cadence][2]
    middle = draw(st.sampled_from([MIDDAY, at("2018-02-17T12:00Z"), at("2024-03-31T01:00Z"), at("2024-10-27T01:00Z")]))
    start = middle - draw(st.integers(0, 2 * days)) * DAY // 2
    partitions = definition(cadence, zone, start, start + draw(st.integers(1, days)) * DAY)
    offsets = st.integers(-days * DAY // 2, days * DAY // 2).filter(bool)
    since, until = sorted((middle + draw(offsets), middle + draw(offsets)))
    return partitions, since, until


@given(ranges())
def test_the_lots_of_a_range_are_dagster_s_keys_each_once_and_in_order(made) -> None:
    partitions, since, until = made
    now = until + DAY
    keys = partitions.get_partition_keys(datetime.fromtimestamp(now, UTC))
    windows = {key: partitions.time_window_for_partition_key(key) for key in keys}
    # Dagster lists one window of a definition that ends within it.
    windows = {key: window for key, window in windows.items() if window.end <= partitions.end}
    inside = [key for key, window in windows.items() if since < window.end.timestamp() <= until]
    try:
        found = lots(partitions).expected(now, since, until)
    except InvalidLotRange as error:
        assert "both ends are in the lot" in error.message
        assert not inside
        return

    assert list(found.ids) == inside
    assert list(found.refs) == [f"flights@{key}" for key in inside]
    assert list(found.starts) == [windows[key].start.timestamp() for key in inside]
    assert all(one < other for one, other in pairwise(found.starts))
    assert lots(partitions).n_absent(now, found.starts) == len(windows) - len(inside)
    assert [lots(partitions).start_of(key) for key in inside] == list(found.starts)


def test_hours_of_lord_howe_are_those_of_dagster_s_list_in_any_range() -> None:
    partitions = dg.HourlyPartitionsDefinition("2024-10-04-00:00", end_date="2024-10-09-00:00", timezone=LORD_HOWE)

    of_a_day = between(lots(partitions), "2024-10-07T01:00+11:00", "2024-10-08T01:00+11:00")

    assert len(of_a_day) == 24
    assert set(of_a_day) <= set(partitions.get_partition_keys())


def test_lots_outside_of_the_partitions_are_counted_and_not_expected() -> None:
    months = lots(dg.MonthlyPartitionsDefinition("2024-02-01", end_date="2024-05-01"))

    found = months.expected(at("2026-01-01T00:00Z"), at("2023-12-15T00:00Z"), at("2024-07-02T00:00Z"))

    assert list(found.ids) == ["2024-02-01", "2024-03-01", "2024-04-01"]
    assert found.n_outside == 4


def test_a_month_that_is_not_over_is_no_lot_yet() -> None:
    months = lots(dg.MonthlyPartitionsDefinition("2024-01-01"))

    assert list(months.expected(at("2024-03-31T23:59Z")).ids) == ["2024-01-01", "2024-02-01"]


def test_excluded_windows_are_not_expected() -> None:
    days = lots(
        dg.TimeWindowPartitionsDefinition(
            start="2024-01-01",
            fmt="%Y-%m-%d",
            cron_schedule="0 0 * * *",
            timezone=BERLIN,
            exclusions=["0 0 * * 6", datetime(2024, 1, 2)],
        )
    )

    found = days.expected(at("2024-01-09T00:00Z"))

    assert list(found.ids) == ["2024-01-01", "2024-01-03", "2024-01-04", "2024-01-05", "2024-01-07", "2024-01-08"]
    assert days.n_absent(at("2024-01-09T00:00Z"), [days.start_of("2024-01-03")]) == 5


def test_a_range_within_one_lot_is_refused_unless_touched_lots_count() -> None:
    months = lots(dg.MonthlyPartitionsDefinition("2024-01-01"))

    with pytest.raises(InvalidLotRange):
        between(months, "2024-02-03T00:00Z", "2024-02-05T00:00Z")

    assert between(months, "2024-02-03T00:00Z", "2024-02-05T00:00Z", touched=True) == ["2024-02-01"]


def test_an_end_before_the_start_and_a_range_of_ages_are_refused() -> None:
    weeks = lots(dg.WeeklyPartitionsDefinition("2024-01-07"))

    with pytest.raises(InvalidLotRange, match="it ends before it begins"):
        between(weeks, "2024-02-05T00:00Z", "2024-02-04T00:00Z")
    with pytest.raises(InvalidLotRange, match="more than 100 years from the partitions of flights"):
        between(weeks, "2024-02-05T00:00Z", "9999-01-01T00:00Z")


def test_more_lots_than_a_report_has_are_refused() -> None:
    minutes = dg.TimeWindowPartitionsDefinition(
        start="1999-01-01-00:00", fmt=MINUTES, cron_schedule="*/5 * * * *", timezone=BERLIN
    )

    with pytest.raises(TooManyLots):
        lots(minutes).expected(at("2026-01-01T00:00Z"))


@pytest.mark.parametrize(
    ("partitions", "unit"),
    [
        (dg.HourlyPartitionsDefinition("2024-01-01-00:00", timezone=BERLIN), "PT1H in Europe/Berlin"),
        (dg.HourlyPartitionsDefinition("2024-01-01-00:00", minute_offset=15), "PT1H"),
        (dg.DailyPartitionsDefinition("2024-03-01", timezone=BERLIN), "P1D in Europe/Berlin"),
        (dg.DailyPartitionsDefinition("2024-01-01", hour_offset=6), "P1D"),
        (dg.WeeklyPartitionsDefinition("2024-01-01", day_offset=3), "P1W"),
        (dg.MonthlyPartitionsDefinition("2024-01-01", day_offset=15), "P1M"),
        (definition("years", "UTC", MIDDAY), "P1Y"),
        (definition("quarters", "UTC", MIDDAY), "0 0 1 */3 *"),
        (definition("half hours", "UTC", MIDDAY), "*/30 * * * *"),
    ],
)
def test_a_cadence_is_named_by_its_duration_or_else_by_its_schedule(partitions, unit) -> None:
    assert str(lots(partitions).cadence) == unit


def test_the_usual_length_of_a_day_is_not_that_of_a_clock_change() -> None:
    assert lots(dg.DailyPartitionsDefinition("2024-03-01", timezone=BERLIN)).cadence.seconds == DAY


@pytest.mark.parametrize(
    ("key", "why"),
    [
        ("2024-2-01", "it is written 2024-02-01"),
        ("2024-02-02", "no lot begins there"),
        ("February", "it is no time in the form 2024-01-01"),
        ("", "it is no time in the form 2024-01-01"),
    ],
)
def test_a_text_that_is_no_partition_key_is_refused_with_the_reason(key: str, why: str) -> None:
    with pytest.raises(NoLotKey) as refused:
        lots(dg.MonthlyPartitionsDefinition("2024-01-01")).start_of(key)

    assert why in refused.value.message


def test_a_second_name_of_an_hour_in_a_zone_is_refused() -> None:
    hours = lots(dg.HourlyPartitionsDefinition("2024-01-01-00:00", timezone=BERLIN))

    for key in ("2024-10-27-02:00+0200", "2024-10-27-02:30", "2024-03-31-02:00"):
        with pytest.raises(NoLotKey):
            hours.start_of(key)


def test_a_lot_id_is_refused_where_lots_have_none() -> None:
    with pytest.raises(NoLotKey, match="names an interval of UTC, and its partitions are of P1M in Europe/Berlin"):
        lots(dg.MonthlyPartitionsDefinition("2024-01-01", timezone=BERLIN)).start_of_lot("20240201P1D000")
