"""Windows of time and their keys are Dagster's own, for random definitions (rule 10.1)."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from itertools import islice

import dagster as dg
import pytest
from dagster import partition_loading_context
from hypothesis import given, settings
from hypothesis import strategies as st

from databuild_dagster.bindings.adapter.dagster_private import key_of_window, window_start_before, windows_from
from databuild_dagster.bindings.registry.window_keys import time_keys_of

ZONES = (
    "UTC",
    "Europe/Berlin",
    "America/New_York",
    "America/Sao_Paulo",
    "Africa/Cairo",
    "Asia/Kathmandu",
    "Asia/Tokyo",
)
FORMATS = ("%Y-%m-%d-%H:%M", "%Y-%m-%dT%H:%M%z", "%Y%m%d%H%M", "%d.%m.%Y %H:%M")
#: A moment near each kind of clock change, and an ordinary one.
MIDDLES = (
    "2018-02-17T12:00",
    "2018-11-04T02:00",
    "2024-03-31T01:00",
    "2024-10-27T01:00",
    "2024-11-03T06:00",
    "2023-02-28T22:00",
    "2023-04-28T00:00",
)
numbers = st.integers(0, 59)
minutes = st.one_of(
    st.just("*"), st.sampled_from(["*/5", "*/7", "0,30", "10-40/10", "5/20"]), numbers.map(str), st.just("0")
)
hours = st.one_of(st.just("*"), st.sampled_from(["*/2", "9-17", "0", "1,2,3", "*/5"]), st.integers(0, 23).map(str))
days = st.one_of(st.just("*"), st.just("*"), st.sampled_from(["1", "15", "27-31", "*/3"]))
months = st.one_of(st.just("*"), st.just("*"), st.sampled_from(["*/3", "feb", "1-6"]))
weekdays = st.one_of(st.just("*"), st.just("*"), st.sampled_from(["0", "7", "1-5", "MON-FRI", "2,4"]))
crons = st.tuples(minutes, hours, days, months, weekdays).map(" ".join)
schedules = st.one_of(
    crons, st.sampled_from(["* * * * *", "*/5 * * * *", "0 * * * *", "0 0 * * *", "30 2 * * *", "0 0 1 * *", "@weekly"])
)


@st.composite
def definitions(draw):  # type: ignore[no-untyped-def]
    """A definition, and a moment near which clocks may change."""
    zone, cron, fmt = draw(st.sampled_from(ZONES)), draw(schedules), draw(st.sampled_from(FORMATS))
    middle = datetime.fromisoformat(draw(st.sampled_from(MIDDLES)))
    start = middle - timedelta(minutes=draw(st.integers(0, 3_000)))
    end = draw(st.none() | st.integers(1, 5_000).map(lambda m: start + timedelta(minutes=m)))
    excluded = draw(
        st.lists(st.sampled_from(["* 3 * * 2", "* * 27 * *", "30 2 1-20 * *"]) | st.just(middle), max_size=2)
    )
    partitions = dg.TimeWindowPartitionsDefinition(
        start=start,
        end=end,
        fmt=fmt,
        cron_schedule=cron,
        timezone=zone,
        end_offset=draw(st.integers(-2, 2)),
        exclusions=excluded or None,
    )
    return partitions, middle.replace(tzinfo=UTC) + timedelta(minutes=draw(st.integers(-3_000, 3_000)))


@settings(max_examples=50, deadline=None)
@given(definitions())
def test_windows_and_their_keys_are_those_of_dagster(made):
    partitions, now = made
    keys, moment = time_keys_of(partitions), now.timestamp()

    windows = list(islice(windows_from(partitions, partitions.start_timestamp), 12))
    starts = list(islice(keys.onward(partitions.start_timestamp), 12))

    names = [key_of_window(partitions, window.start) for window in windows]
    assert starts == [window.start.timestamp() for window in windows]
    assert [keys.times.after(start) for start in starts] == [window.end.timestamp() for window in windows]
    assert keys.between(starts[0], starts[-1]) == names
    for start, name in zip(starts, names, strict=True):
        # A key of which Dagster itself makes another window.
        is_same = partitions.time_window_for_partition_key(name).start.timestamp() == start
        assert not is_same or keys.start_of(name) == start
    assert next(keys.times.back(moment)) == window_start_before(partitions, moment).timestamp()
    if not partitions.exclusions:
        assert keys.key_of(next(keys.times.back(moment))) == partitions.get_partition_key_for_timestamp(moment)


@settings(max_examples=50, deadline=None)
@given(definitions())
def test_the_keys_that_exist_are_those_of_dagster(made):
    partitions, now = made
    found = time_keys_of(partitions).line(now.timestamp())

    with partition_loading_context(effective_dt=now):
        first, last = partitions.get_first_partition_window(), partitions.get_last_partition_window()
        assert found.bounds == (
            None if first is None or last is None else (first.start.timestamp(), last.start.timestamp())
        )
        if found.bounds and found.bounds[1] - found.bounds[0] < 3 * 86_400:
            listed = list(partitions.get_partition_keys())
            assert found.all() == listed
            names = {name for key in listed[:6] for name in (key, f"{key}+0000", key[:-1], f"{key}0")}
            assert {name for name in names if found.place_of(name) is not None} <= {
                name for name in names if partitions.has_partition_key(name)
            }
            assert {name for name in listed[:6] if found.place_of(name) is None} <= {
                name for name in listed[:6] if not partitions.has_partition_key(name)
            }


@pytest.mark.parametrize("cron", ["30 1 * * *", "0 2 * * *", "0 1,13 * * *", "15,45 0-4 * * *", "30 23 * * *"])
@pytest.mark.parametrize(
    ("zone", "day"),
    [
        ("Europe/London", "2024-03-31"),
        # Their winter, or the fast, is what saves daylight.
        ("Europe/Dublin", "2024-03-31"),
        ("Africa/Casablanca", "2024-04-14"),
        # A change of the zone for good, and of a summer two hours ahead.
        ("Africa/Sao_Tome", "2018-01-01"),
        ("America/Bahia_Banderas", "2012-04-01"),
        # Not on the hour; from 23:00 to midnight; of two hours; a midnight of which the end was before it.
        ("Pacific/Chatham", "2012-09-30"),
        ("America/Nuuk", "2024-03-30"),
        ("Antarctica/Troll", "2012-03-25"),
        ("America/St_Johns", "2010-11-07"),
    ],
)
def test_a_day_of_an_uncommon_change_has_the_windows_and_keys_of_dagster(zone, day, cron):
    start = datetime.fromisoformat(day) - timedelta(days=1)
    partitions = dg.TimeWindowPartitionsDefinition(start=start, fmt=FORMATS[0], cron_schedule=cron, timezone=zone)
    keys = time_keys_of(partitions)

    windows = list(islice(windows_from(partitions, partitions.start_timestamp), 30))

    if keys is not None:
        found = [(keys.key_of(at), at) for at in islice(keys.onward(partitions.start_timestamp), 30)]
        assert found == [(key_of_window(partitions, window.start), window.start.timestamp()) for window in windows]


@pytest.mark.parametrize(
    ("zone", "is_common"),
    [
        ("Europe/Dublin", True),
        ("America/Santiago", True),
        ("America/Nuuk", False),
        ("Antarctica/Troll", False),
        ("Australia/Lord_Howe", False),
    ],
)
def test_a_zone_with_uncommon_clock_changes_is_left_to_dagster(zone, is_common):
    partitions = dg.TimeWindowPartitionsDefinition(
        start=datetime(2024, 1, 1), fmt=FORMATS[0], cron_schedule="30 23 * * *", timezone=zone
    )

    assert (time_keys_of(partitions) is not None) == is_common
