"""The interval of a moment, as in Dagster, for every kind of schedule (rule 10.1: half-open)."""

from itertools import pairwise

import dagster as dg
import pytest

from databuild_dagster.bindings.registry.lot_partitions import lot_keys_if_any
from databuild_dagster.bindings.registry.registration import partitions_text
from databuild_dagster.bindings.registry.window_keys import CHUNK, Windows
from databuild_dagster.model.datasets import DatasetSpec

DEFINITIONS = {
    "5 minutes": dg.TimeWindowPartitionsDefinition(
        start="2024-02-28-12:00", cron_schedule="*/5 * * * *", fmt="%Y-%m-%d-%H:%M", end="2024-03-02-00:00"
    ),
    "hours": dg.HourlyPartitionsDefinition("2023-01-01-00:00", end_date="2024-04-01-00:00"),
    "hours of New York": dg.HourlyPartitionsDefinition(
        "2023-03-05-00:00", end_date="2024-04-01-00:00", timezone="America/New_York"
    ),
    "days of New York": dg.DailyPartitionsDefinition("2023-01-01", end_date="2024-04-01", timezone="America/New_York"),
    "days from six": dg.DailyPartitionsDefinition("2023-01-01", end_date="2024-04-01", hour_offset=6),
    "weeks": dg.WeeklyPartitionsDefinition("2023-01-01", end_date="2024-04-01"),
    "months": dg.MonthlyPartitionsDefinition("2023-01-01", end_date="2024-04-01"),
}


def windows_of(partitions):
    """As the watcher of a boundary has them: counted where they are lots, asked of Dagster elsewhere."""
    dataset = DatasetSpec("clicks", "clicks", "here", partitions=partitions_text(partitions))
    return Windows(partitions, lot_keys_if_any(dataset))


@pytest.mark.parametrize("made", [Windows, windows_of], ids=["by Dagster", "by a watcher"])
@pytest.mark.parametrize("partitions", DEFINITIONS.values(), ids=DEFINITIONS)
def test_intervals_follow_each_other_across_chunks_and_are_those_of_dagster(partitions, made):
    windows = made(partitions)
    first = partitions.get_first_partition_key()
    assert first is not None
    found = [windows.at(windows.of(first).start)]
    for _ in range(CHUNK + 5):
        assert found[-1] is not None
        if (following := windows.at(found[-1].end)) is None:
            break
        found.append(following)

    assert all(one.end == other.start for one, other in pairwise(found))
    assert [interval.key for interval in found] == list(partitions.get_partition_keys()[: len(found)])
    for interval in found[::7]:
        assert windows.at((interval.start + interval.end) / 2) == interval
        assert windows.at(interval.end - 0.001) == interval
    assert made(partitions).at(found[-1].start) == found[-1]
    assert windows.at(windows.start - 0.001) is None
    assert windows.at(windows.end) is None


@pytest.mark.parametrize("made", [Windows, windows_of], ids=["by Dagster", "by a watcher"])
def test_ended_windows_are_listed_in_order_and_up_to_a_bound(made):
    windows = made(DEFINITIONS["hours"])
    start = windows.start

    ended = list(windows.ended_by(start + 3_600, start + 4 * 3_600 - 1, 100))
    some = list(windows.ended_by(start, start + 86_400, 3))

    assert [interval.key for interval in ended] == ["2023-01-01-01:00", "2023-01-01-02:00"]
    assert [interval.key[-5:] for interval in some] == ["00:00", "01:00", "02:00"]
    assert list(windows.ended_by(start, start, 3)) == []
