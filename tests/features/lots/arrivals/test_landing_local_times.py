"""A local time in the name of a file becomes a moment, or two where the clocks show it twice or never (rule 10.6)."""

from datetime import UTC
from zoneinfo import ZoneInfo

import pytest

from databuild_dagster.features.lots.arrivals.landing import LandingPattern
from databuild_dagster.warehouse.disk import Listed


def moments(zone, form, name):
    """The hours and minutes of UTC that the name of a file may mean."""
    pattern = LandingPattern(f"/landing/{{time:{form}}}.parquet", "a", ZoneInfo(zone), by_name=True)
    times = pattern.times_of(Listed(f"/landing/{name}.parquet", 1, 0.0, ""))
    return [f"{time.astimezone(UTC):%d %H:%M}" for time in times]


@pytest.mark.parametrize(
    ("zone", "name", "means"),
    [
        ("Europe/Berlin", "20241027T0159", ["26 23:59"]),
        ("Europe/Berlin", "20241027T0200", ["27 00:00", "27 01:00"]),
        ("Europe/Berlin", "20241027T0259", ["27 00:59", "27 01:59"]),
        ("Europe/Berlin", "20241027T0300", ["27 02:00"]),
        ("Europe/Berlin", "20240331T0159", ["31 00:59"]),
        ("Europe/Berlin", "20240331T0200", ["31 01:00", "31 00:00"]),
        ("Europe/Berlin", "20240331T0300", ["31 01:00"]),
        ("America/New_York", "20241103T0130", ["03 05:30", "03 06:30"]),
        ("Australia/Lord_Howe", "20240407T0129", ["06 14:29"]),
        ("Australia/Lord_Howe", "20240407T0130", ["06 14:30", "06 15:00"]),
        ("UTC", "20241027T0200", ["27 02:00"]),
    ],
)
def test_a_time_that_the_clocks_show_twice_or_never_has_two_readings(zone, name, means):
    assert moments(zone, "%Y%m%dT%H%M", name) == means


def test_a_time_with_its_offset_has_one_reading():
    assert moments("Europe/Berlin", "%Y%m%dT%H%M%z", "20241027T0200+0100") == ["27 01:00"]
    assert moments("Europe/Berlin", "%Y%m%dT%H%M%z", "20240331T0230Z") == ["31 02:30"]


def test_a_name_without_a_time_that_can_be_has_none():
    assert moments("Europe/Berlin", "%Y-%m-%d", "2024-02-30") == []
