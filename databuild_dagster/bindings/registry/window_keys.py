"""The lots of a dataset for lists and gap reports: by lot ids where it has lot ids, else by Dagster's windows (rule 10.1).

A lot of Dagster's windows is a single window, named by its partition key: in a time zone, with an offset, of weeks, months, any
schedule. Dagster computes windows and keys, also for days with 23 and 25 hours. Where the clock of a zone changes by half
an hour, Dagster's hours depend on the first hour, so they are listed from there.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Collection, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from functools import cached_property, lru_cache
from itertools import islice, pairwise, takewhile
from typing import NamedTuple
from zoneinfo import ZoneInfo

from dagster import MultiPartitionsDefinition, TimeWindow, TimeWindowPartitionsDefinition, partition_loading_context

from databuild_dagster.bindings.adapter.dagster_private import key_of_window, window_start_before, windows_from
from databuild_dagster.bindings.registry.lot_partitions import (
    LotKeys,
    NoLotKey,
    both_ends_in,
    lot_keys_if_any,
    unit_of_schedule,
)
from databuild_dagster.bindings.registry.plain_keys import TimeKeys, time_keys
from databuild_dagster.bindings.registry.registration import partitions_from
from databuild_dagster.engine.wording import when
from databuild_dagster.model.datasets import MAX_UNPACKED, DatasetSpec
from databuild_dagster.model.errors import InvalidRequest, Refused
from databuild_dagster.model.lots import MAX_LOTS, Cadence, Expected, InvalidLotRange, LotRange, TooManyLots
from databuild_dagster.model.refs import make_ref


class NoLots(Refused):
    """{asset} has no lots: {why}."""

    hint = (
        "Lots are the partitions of a definition in time, of one dimension: DailyPartitionsDefinition, "
        "MonthlyPartitionsDefinition, TimeWindowPartitionsDefinition and so on."
    )


def lots_of(dataset: DatasetSpec) -> Lots:
    """The lots of a dataset. Raises `NoLots`."""
    found = lot_keys_if_any(dataset) or _window_keys(dataset.asset, dataset.partitions)
    if isinstance(found, str):
        raise NoLots(asset=dataset.asset, why=found)
    return found


def lots_if_any(dataset: DatasetSpec) -> Lots | None:
    """The lots of a dataset, None if it has none."""
    try:
        return lots_of(dataset)
    except NoLots:
        return None


@lru_cache(maxsize=MAX_UNPACKED)
def _window_keys(asset: str, text: str | None) -> WindowKeys | str:
    """The windows of a definition, or why they are no lots."""
    partitions = partitions_from(text)
    if partitions is None:
        return "it has no partitions"
    if isinstance(partitions, MultiPartitionsDefinition):
        return "a partition of several dimensions is not one interval"
    if not isinstance(partitions, TimeWindowPartitionsDefinition):
        return "its partitions are no intervals of time"
    windows = WindowKeys(asset, partitions)
    keys = [windows.key_of(window) for window in windows.sample]
    if len(set(keys)) < len(keys):
        return f"its key format {partitions.fmt!r} gives several lots of {windows.cadence} the same key"
    return windows


class InvalidTime(InvalidRequest):
    """{what} is {value!r}, which is not possible: {why}."""

    hint = (
        "Write a partition key, a day such as 2023-02-27, a time with its offset such as 2023-02-27T23:55Z, or a lot id if "
        "its lots have ids."
    )


def moment_of(name: str, text: str | None, lots: Lots) -> float | None:
    """The moment that a person names as the end of a range of lots (rule 10.7).

    It is a lot or a partition key, which begins there, a day of the partitions' zone, or a time. `name` is
    the option or parameter, for messages. Raises `InvalidTime`, `InvalidLot`, `NoLotKey`.
    """
    if text is None:
        return None
    try:
        return lots.start_of(text)
    except NoLotKey as error:
        no_key = error
    if text[:1].isdigit() and "P" in text.upper():
        return lots.start_of_lot(text)
    try:
        day = date.fromisoformat(text)
    except ValueError:
        pass
    else:
        return datetime(day.year, day.month, day.day, tzinfo=ZoneInfo(lots.cadence.timezone)).timestamp()
    try:
        at = datetime.fromisoformat(text)
        why = "it does not say in which time zone" if at.utcoffset() is None else None
    except ValueError:
        why = "that is no day, no time and no lot"
    if why is not None:
        raise InvalidTime(what=name, value=text, why=f"{why}, and as a partition key {no_key.facts['why']}")
    return at.timestamp()


#: Intervals of a chunk, and intervals before it that may overlap its first interval.
CHUNK = 300
OVERLAP = 2
#: Chunks cached; at this number the cache is cleared.
MAX_CHUNKS = 2_000
#: Windows from which the usual length of a window is taken: enough to pass a month of days.
N_SAMPLED = 60
#: Years that a range may reach beyond the partitions: what is outside of them is counted window by window.
MOST_YEARS_BEYOND = 100
_YEAR_SECONDS = 366 * 86_400
#: Named schedules and their cron fields.
_NAMED = {"@weekly": "0 0 * * 0", "@monthly": "0 0 1 * *", "@yearly": "0 0 1 1 *", "@annually": "0 0 1 1 *"}
#: The duration of an interval by the fields of its schedule that are numbers, where all other fields are *.
_UNIT_OF_NUMBERS: dict[tuple[bool, ...], str] = {
    (True, False, False, False, False): "PT1H",
    (True, True, False, False, False): "P1D",
    (True, True, False, False, True): "P1W",
    (True, True, True, False, False): "P1M",
    (True, True, True, True, False): "P1Y",
}
#: The last day of the month that each month has.
_LAST_COMMON_DAY = 28


@dataclass(frozen=True)
class WindowKeys:
    """The windows of a dataset as lots."""

    asset: str
    partitions: TimeWindowPartitionsDefinition

    @cached_property
    def cadence(self) -> Cadence:
        starts = [window.start.timestamp() for window in self.sample]
        lengths = sorted(following - start for start, following in pairwise(starts))
        # Not the shortest: a day of the sample may have 23 hours. Not the middle: a night is longer than a working day.
        usual = lengths[len(lengths) // 4]
        return Cadence(_unit_of(self.partitions.cron_schedule), usual, self.partitions.timezone)

    @cached_property
    def sample(self) -> list[TimeWindow]:
        """The first windows, including future windows."""
        return list(islice(windows_from(self.partitions, self._begin), N_SAMPLED))

    def key_of(self, window: TimeWindow) -> str:
        return key_of_window(self.partitions, window.start)

    def start_of(self, key: str) -> float:
        """The first moment of a partition key, which has a single spelling. Raises `NoLotKey`."""
        partitions, timed = self.partitions, time_keys_of(self.partitions)
        if timed is not None and (start := timed.start_of(key)) is not None:
            return start
        try:
            window = partitions.time_window_for_partition_key(key)
        except ValueError:
            raise self._no_key(key, f"it is no time in the form {self._example}") from None
        if self.key_of(window) == key:
            return window.start.timestamp()
        if shifts_by_part_of_an_hour(window.start) and is_listed(partitions, key):
            return partitions.start_time_for_partition_key(key).timestamp()
        raise self._no_key(key, _why_no_key(key, partitions.fmt))

    def start_of_lot(self, lot_id: str) -> float:
        """Always raises `NoLotKey`: windows have no lot ids."""
        raise self._no_key(lot_id, f"a lot id names an interval of UTC, and its partitions are of {self.cadence}")

    def name_of(self, key: str) -> str:
        """The partition key."""
        return key

    def n_absent(self, now: float, there: Collection[float]) -> int:
        """The number of windows that exist by now and whose start is not in `there`."""
        begin, end = self._existing(now)
        with partition_loading_context(effective_dt=datetime.fromtimestamp(now, UTC)):
            n_existing = self.partitions.get_num_partitions()
        zone, is_left_out = self.partitions.start.tzinfo, self.partitions.is_window_start_excluded
        inside = [start for start in there if begin <= start < end]
        return n_existing - sum(not is_left_out(datetime.fromtimestamp(start, zone)) for start in inside)

    def expected(
        self, now: float, start: float | None = None, end: float | None = None, *, touched: bool = False
    ) -> Expected:
        """The windows of a range, as `LotKeys.expected`. Raises `TooManyLots` and `InvalidLotRange`."""
        begin, stop = self._existing(now)
        since = begin if start is None else self._rounded_down(start, begin, stop)
        until = max(stop, since) if end is None else self._rounded_down(end, begin, stop)
        if start is not None and end is not None and start > end:
            raise InvalidLotRange(start=when(start), end=when(end), why="it ends before it begins")
        if end is not None and touched and until < end:
            until = next(windows_from(self.partitions, until)).end.timestamp()
        if end is not None and not touched and since == until:
            window = next(windows_from(self.partitions, until))
            raise both_ends_in(self.key_of(window), since if start is None else start, end)
        first, last = max(since, begin), min(until, stop)
        windows = list(self._between(first, last)) if first < last else []
        refs = [make_ref(self.asset, self.key_of(window)) for window in windows]
        return Expected(
            asset=self.asset,
            cadence=self.cadence,
            start=windows[0].start.timestamp() if windows else first,
            end=windows[-1].end.timestamp() if windows else first,
            ids=[self.key_of(window) for window in windows],
            refs=refs,
            starts=[window.start.timestamp() for window in windows],
            n_outside=self._n_between(since, min(until, begin)) + self._n_between(max(since, stop), until),
        )

    @property
    def _begin(self) -> float:
        return self.partitions.start.timestamp()

    def _existing(self, now: float) -> tuple[float, float]:
        """From the first window to the end of the last window that exists now."""
        begin = next(windows_from(self.partitions, self._begin)).start.timestamp()
        with partition_loading_context(effective_dt=datetime.fromtimestamp(now, UTC)):
            last = self.partitions.get_last_partition_window_ignoring_exclusions()
        return begin, begin if last is None else max(last.end.timestamp(), begin)

    def _rounded_down(self, moment: float, begin: float, stop: float) -> float:
        most = MOST_YEARS_BEYOND * _YEAR_SECONDS
        if not begin - most <= moment <= stop + most:
            why = f"{when(moment)} is more than {MOST_YEARS_BEYOND} years from the partitions of {self.asset}"
            raise InvalidLotRange(start=when(min(moment, begin)), end=when(max(moment, stop)), why=why)
        return window_start_before(self.partitions, moment).timestamp()

    def _between(self, first: float, last: float) -> Iterator[TimeWindow]:
        """The windows that begin at `first` or later and before `last`. Raises `TooManyLots`."""
        if (n := (last - first) / self.cadence.seconds) > MAX_LOTS:
            raise TooManyLots(asset=self.asset, start=when(first), end=when(last), n=int(n), most=MAX_LOTS)
        listed_from = self._begin if shifts_by_part_of_an_hour(self.partitions.start) else first
        windows = windows_from(self.partitions, listed_from)
        of_range = takewhile(lambda window: window.start.timestamp() < last, windows)
        return (window for window in of_range if window.start.timestamp() >= first)

    def _n_between(self, first: float, last: float) -> int:
        if first >= last:
            return 0
        zone = self.partitions.start.tzinfo
        window = TimeWindow(datetime.fromtimestamp(first, zone), datetime.fromtimestamp(last, zone))
        return self.partitions.get_num_partitions_in_window(window)

    def _no_key(self, key: str, why: str) -> NoLotKey:
        return NoLotKey(key=key, asset=self.asset, why=why, example=self._example, lot=self._example)

    @property
    def _example(self) -> str:
        return self.key_of(self.sample[0])


def time_keys_of(partitions: TimeWindowPartitionsDefinition) -> TimeKeys | None:
    """The windows of a definition by arithmetic, 100 times faster than Dagster's; None if only Dagster has them."""
    return time_keys(
        partitions.cron_schedule,
        partitions.timezone,
        partitions.fmt,
        partitions.start_timestamp,
        partitions.end_timestamp,
        partitions.end_offset,
        tuple(one if isinstance(one, str) else one.timestamp for one in partitions.exclusions or ()),
    )


def shifts_by_part_of_an_hour(at: datetime) -> bool:
    """Whether the clock of the zone changes by a part of an hour, as on Lord Howe Island."""
    winter, summer = (at.replace(month=month, day=1).utcoffset() or timedelta() for month in (1, 7))
    return bool((winter - summer) % timedelta(hours=1))


def is_listed(partitions: TimeWindowPartitionsDefinition, key: str) -> bool:
    """Dagster counts hours on across such a change: its list has 02:30 where the clock has 03:00, and its mappings name that."""
    try:
        written = datetime.strptime(key, partitions.fmt)
    except ValueError:
        return False
    day = written.replace(hour=0, minute=0, second=0, tzinfo=partitions.start.tzinfo)
    of_day = partitions.get_partition_keys_in_time_window(TimeWindow(day, day + timedelta(days=1)))
    return key in of_day or key in partitions.get_partition_keys()


def _why_no_key(key: str, fmt: str) -> str:
    """The reason why a text that Dagster can read as a key is none."""
    with suppress(ValueError):  # It has an offset that its format has not.
        if (written := datetime.strptime(key, fmt).strftime(fmt)) != key:
            return f"it is written {written}"
    return "no lot begins there"


def _unit_of(schedule: str) -> str:
    """The duration of a schedule's intervals if it is constant, else the schedule."""
    if (unit := unit_of_schedule(schedule)) is not None:
        return unit.token
    fields = tuple(_NAMED.get(schedule, schedule).split())
    is_plain = len(fields) == 5 and all(field.isdigit() or field == "*" for field in fields)
    if not is_plain or (fields[2].isdigit() and int(fields[2]) > _LAST_COMMON_DAY):
        return schedule
    return _UNIT_OF_NUMBERS.get(tuple(field.isdigit() for field in fields), schedule)


class Interval(NamedTuple):
    """A half-open interval in seconds since 1970 UTC, with its partition key."""

    start: float
    end: float
    key: str


class Windows:
    """A fast lookup of the partition of a moment, because a folder may have a hundred thousand files.

    Dagster takes 0.1 ms for a moment and 0.02 ms per interval for many intervals in a row. Intervals are therefore computed
    and cached in chunks. Lots are computed by counting, without Dagster: `lots` are the definition's lots, if it has any.
    """

    def __init__(self, partitions: TimeWindowPartitionsDefinition, lots: LotKeys | None = None) -> None:
        self._partitions = partitions
        self._lots = None if partitions.exclusions else lots
        self._timed = time_keys_of(partitions)
        #: Chunk number to the starts of its intervals, and the intervals.
        self._chunks: dict[int, tuple[list[float], list[Interval]]] = {}
        self.start = partitions.start.timestamp()
        self.end = None if partitions.end is None else partitions.end.timestamp()
        first = self.of(partitions.start.strftime(partitions.fmt))
        self._chunk_seconds = max(first.end - first.start, 1.0) * CHUNK

    def at(self, moment: float) -> Interval | None:
        """The interval around a moment, None if there is no partition. The interval may be in the future."""
        if moment < self.start or (self.end is not None and moment >= self.end):
            return None
        number = int((moment - self.start) // self._chunk_seconds)
        if number not in self._chunks:
            if len(self._chunks) >= MAX_CHUNKS:
                self._chunks.clear()
            self._chunks[number] = self._chunk(number)
        starts, intervals = self._chunks[number]
        place = bisect_right(starts, moment)
        if place and moment < intervals[place - 1].end:
            interval = intervals[place - 1]
        else:
            # The interval is in the future, or in a gap of a cron schedule.
            interval = self.of(self._partitions.get_partition_key_for_timestamp(moment))
        is_whole = interval.start >= self.start and (self.end is None or interval.end <= self.end)
        return interval if is_whole and interval.start <= moment < interval.end else None

    def _chunk(self, number: int) -> tuple[list[float], list[Interval]]:
        begin = self.start + self._chunk_seconds * number
        since = max(self.start, begin - self._chunk_seconds / CHUNK * OVERLAP)
        intervals = list(self._between(since, begin + self._chunk_seconds))
        return [interval.start for interval in intervals], intervals

    def _between(self, since: float, until: float) -> Iterator[Interval]:
        """The intervals that begin at `since` or later and before `until`, in order."""
        if self._lots is None and self._timed is not None:
            starts = takewhile(lambda start: start < until, self._timed.onward(since))
            yield from (self._interval(self._timed, start) for start in starts)
            return
        if self._lots is None:
            yield from map(self.of, self._keys(since, until))
            return
        seconds = self._lots.unit.seconds
        lots = LotRange(self._lots.unit, math.ceil(since / seconds), math.ceil(until / seconds))
        beginnings = range(lots.first * seconds, lots.stop * seconds, seconds)
        for start, key in zip(beginnings, self._lots.keys_of(lots), strict=True):
            yield Interval(float(start), float(start + seconds), key)

    def _keys(self, since: float, until: float) -> Sequence[str]:
        zone = self._partitions.start.tzinfo
        window = TimeWindow(datetime.fromtimestamp(since, zone), datetime.fromtimestamp(until, zone))
        return self._partitions.get_partition_keys_in_time_window(window)

    def of(self, key: str) -> Interval:
        """The interval of a key."""
        if self._timed is not None and (start := self._timed.start_of(key)) is not None:
            return self._interval(self._timed, start)
        window = self._partitions.time_window_for_partition_key(key)
        return Interval(window.start.timestamp(), window.end.timestamp(), key)

    def _interval(self, timed: TimeKeys, start: float) -> Interval:
        return Interval(start, timed.times.after(start), timed.key_of(start))

    def ended_by(self, start: float, moment: float, most: int) -> Iterator[Interval]:
        """At most `most` intervals that begin at or after `start` and have ended by a moment, in order."""
        end = moment if self.end is None else min(moment, self.end)
        if start >= end:
            return
        until = min(end, start + self._chunk_seconds / CHUNK * most)
        for count, interval in enumerate(self._between(start, until)):
            if interval.end > end or count >= most:
                return
            if interval.start >= start:
                yield interval


#: The lots of a dataset: with lot ids, or as windows.
Lots = LotKeys | WindowKeys
