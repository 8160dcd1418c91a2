"""From a moment to the partition of its interval, quickly: a folder may hold a hundred thousand files.

Dagster answers for one moment in a tenth of a millisecond; intervals that it has named once are kept.
"""

from bisect import bisect_right
from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import NamedTuple

from dagster import TimeWindow, TimeWindowPartitionsDefinition

#: Intervals kept; beyond that it begins anew.
MAX_KEPT = 500_000


class Interval(NamedTuple):
    """Half-open, in seconds since 1970 UTC."""

    start: float
    end: float
    key: str


class Windows:
    """The intervals of one partitions definition."""

    def __init__(self, partitions: TimeWindowPartitionsDefinition) -> None:
        self._partitions = partitions
        self._kept: list[Interval] = []
        #: When each of them begins.
        self._starts: list[float] = []
        self.start = partitions.start.timestamp()
        self.end = None if partitions.end is None else partitions.end.timestamp()

    def at(self, moment: float) -> Interval | None:
        """The interval that a moment lies in, None where there is no partition; it may not have passed yet."""
        if moment < self.start or (self.end is not None and moment >= self.end):
            return None
        place = bisect_right(self._starts, moment)
        if place and moment < self._kept[place - 1].end:
            return self._kept[place - 1]
        interval = self.of(self._partitions.get_partition_key_for_timestamp(moment))
        if not interval.start <= moment < interval.end:
            # What a cron schedule leaves out.
            return None
        if len(self._kept) >= MAX_KEPT:
            self._kept.clear()
            self._starts.clear()
            place = 0
        self._kept.insert(place, interval)
        self._starts.insert(place, interval.start)
        return interval

    def of(self, key: str) -> Interval:
        """The interval of a key."""
        window = self._partitions.time_window_for_partition_key(key)
        return Interval(window.start.timestamp(), window.end.timestamp(), key)

    def ended_by(self, start: float, moment: float, most: int) -> Iterator[Interval]:
        """At most so many intervals that begin at or after `start` and have ended by a moment, in order."""
        end = moment if self.end is None else min(moment, self.end)
        if start >= end:
            return
        zone = self._partitions.start.tzinfo
        first = self.at(start)
        length_seconds = 86_400.0 if first is None else first.end - first.start
        begin = datetime.fromtimestamp(start, zone)
        until = min(datetime.fromtimestamp(end, zone), begin + timedelta(seconds=length_seconds * most))
        for count, key in enumerate(self._partitions.get_partition_keys_in_time_window(TimeWindow(begin, until))):
            interval = self.of(key)
            if interval.end > moment or count >= most:
                return
            if interval.start >= start:
                yield interval
