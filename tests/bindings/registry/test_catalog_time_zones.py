"""Partition keys are Dagster's own where clocks change: by an hour, by half an hour, at midnight (rule 10.1)."""

from __future__ import annotations

from typing import Any, cast

import dagster as dg
import pytest

from databuild_dagster.bindings.registry.catalog import DagsterCatalog
from databuild_dagster.bindings.registry.lot_partitions import lot_keys_if_any
from databuild_dagster.bindings.registry.registration import mapping_text, partitions_text
from databuild_dagster.bindings.registry.selections import refs_named
from databuild_dagster.bindings.registry.window_keys import Windows
from databuild_dagster.model.datasets import DatasetSpec, InputSpec
from databuild_dagster.model.refs import make_ref, partition_key_of

LORD_HOWE = "Australia/Lord_Howe"
#: The zone, the first day, the day after the last one, and the keys of the repeated hour.
CHANGES = {
    "Berlin, spring": ("Europe/Berlin", "2024-03-29", "2024-04-02", []),
    "Berlin, autumn": ("Europe/Berlin", "2024-10-25", "2024-10-29", ["2024-10-27-02:00+0100"]),
    "New York, spring": ("America/New_York", "2024-03-08", "2024-03-12", []),
    "New York, autumn": ("America/New_York", "2024-11-01", "2024-11-05", ["2024-11-03-01:00-0500"]),
    "Lord Howe, autumn": (LORD_HOWE, "2024-04-05", "2024-04-09", ["2024-04-07-01:30+1030"]),
    "Lord Howe, spring": (LORD_HOWE, "2024-10-04", "2024-10-08", []),
    # Midnight is there twice, and not at all.
    "São Paulo, autumn": ("America/Sao_Paulo", "2018-02-16", "2018-02-20", ["2018-02-17-23:00-0300"]),
    "São Paulo, spring": ("America/Sao_Paulo", "2018-11-02", "2018-11-06", []),
}
HALF_HOURS = "half hours"


def definition(change: str, kind: str) -> dg.TimeWindowPartitionsDefinition:
    zone, first, end, _ = CHANGES[change]
    if kind == "days":
        return dg.DailyPartitionsDefinition(first, end_date=end, timezone=zone)
    schedule = "0 * * * *" if kind == "hours" else "*/30 * * * *"
    return dg.TimeWindowPartitionsDefinition(
        start=f"{first}-00:00", end=f"{end}-00:00", fmt="%Y-%m-%d-%H:%M", cron_schedule=schedule, timezone=zone
    )


def dataset(partitions: dg.PartitionsDefinition, *inputs: InputSpec) -> DatasetSpec:
    return DatasetSpec("x", "x", "here", partitions=partitions_text(partitions), inputs=inputs)


def catalog() -> DagsterCatalog:
    return DagsterCatalog(cast(Any, None))


def start_of(partitions: dg.TimeWindowPartitionsDefinition, key: str) -> float:
    return partitions.time_window_for_partition_key(key).start.timestamp()


every_change = pytest.mark.parametrize("change", CHANGES)
#: Hours of Lord Howe have a test of their own.
every_definition = pytest.mark.parametrize(
    ("change", "kind"),
    [
        (change, kind)
        for change in CHANGES
        for kind in ("days", "hours", HALF_HOURS)
        if kind != "hours" or CHANGES[change][0] != LORD_HOWE
    ],
)


@every_change
def test_the_repeated_hour_has_a_key_of_its_own(change):
    keys = definition(change, "hours").get_partition_keys()

    assert [key for key in keys if len(key) > len("2024-01-01-00:00")] == CHANGES[change][3]


@every_definition
def test_each_key_of_dagster_is_one_in_ranges_and_in_the_order_of_time(change, kind):
    partitions = definition(change, kind)
    keys = partitions.get_partition_keys()
    spec = dataset(partitions)

    assert {key: catalog().why_not(spec, key) for key in keys} == dict.fromkeys(keys)
    assert catalog().absent(spec, keys) == {}
    assert catalog().launchable(spec, tuple(reversed(keys)), len(keys)) == (tuple(keys),)
    for name, selected in ((f"{keys[1]}..{keys[-2]}", keys[1:-1]), ("*", keys)):
        found = refs_named(spec, make_ref("x", name), lambda: None)
        assert [partition_key_of(ref) for ref in found] == list(selected)


@every_definition
def test_each_moment_is_in_the_interval_of_dagster_s_key(change, kind):
    """Boundaries sort files by it."""
    partitions = definition(change, kind)
    windows = Windows(partitions, lot_keys_if_any(dataset(partitions)))
    start, end = partitions.start.timestamp(), partitions.end.timestamp()
    for moment in range(int(start), int(end), 600):
        interval = windows.at(moment)
        assert interval is not None
        assert interval.key == partitions.get_partition_key_for_timestamp(moment)
        assert interval.start <= moment < interval.end

    assert [interval.key for interval in windows.ended_by(start, end, 10_000)] == partitions.get_partition_keys()


@every_definition
def test_a_partition_that_is_no_utc_day_or_hour_is_no_lot(change, kind):
    assert lot_keys_if_any(dataset(definition(change, kind))) is None


@every_definition
def test_a_day_is_made_of_all_its_hours_and_each_of_them_wakes_it(change, kind):
    days, parts = definition(change, "days"), definition(change, kind)
    source = InputSpec("h", mapping_text(None, parts, upstream_is_here=True, place="x"))
    spec = dataset(days, source)
    found = {day: catalog().inputs(spec, day) for day in days.get_partition_keys()}

    for day, refs in found.items():
        window = days.time_window_for_partition_key(day)
        keys = [partition_key_of(ref) for ref in refs]
        inside = window.start.timestamp(), window.end.timestamp()
        assert keys == [key for key in parts.get_partition_keys() if inside[0] <= start_of(parts, key) < inside[1]]
        assert {catalog().woken(spec, source, key) for key in keys} == {(day,)}


@pytest.mark.parametrize("change", [change for change, (zone, *_) in CHANGES.items() if zone == LORD_HOWE])
def test_a_day_over_hours_can_be_built_where_the_clock_changes_by_half_an_hour(change):
    """Dagster's lists count such hours on from 01:30 or 02:30; its mappings name them so on the day of the change."""
    days, hours = definition(change, "days"), definition(change, "hours")
    spec = dataset(days, InputSpec("h", mapping_text(None, hours, upstream_is_here=True, place="x")))

    for day in days.get_partition_keys():
        keys = [partition_key_of(ref) for ref in catalog().inputs(spec, day)]
        assert len(keys) >= 24
        assert catalog().absent(dataset(hours), keys) == {}


def test_a_second_name_of_an_hour_is_refused_where_the_clock_changes_by_an_hour():
    berlin = dataset(definition("Berlin, autumn", "hours"))

    assert catalog().why_not(berlin, "2024-10-27-02:30") is not None
    assert catalog().why_not(berlin, "2024-10-27-02:00+0200") is not None
