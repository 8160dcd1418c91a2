"""The times of a cron schedule in a time zone by arithmetic: the same as Dagster's iterator, which takes 10 ms for a minute.

A day has the schedule's times of day, counted from its midnight. Only a day on which the clock changes is computed time by time,
by Dagster's rules: a schedule of every hour takes each existing time, both times of an ambiguous one; other schedules take
the later time of an ambiguous one, and the end of a gap.
"""

import re
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from functools import cached_property, lru_cache
from typing import NamedTuple
from zoneinfo import ZoneInfo

from databuild_dagster.model.datasets import MAX_UNPACKED

_NAMED = {
    "@hourly": "0 * * * *",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@weekly": "0 0 * * 0",
    "@monthly": "0 0 1 * *",
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
}
_MONTHS = ("", "jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
_WEEKDAYS = ("sun", "mon", "tue", "wed", "thu", "fri", "sat")
#: The least and the greatest value of each field, and the names of its values.
_FIELDS: tuple[tuple[int, int, Sequence[str]], ...] = (
    (0, 59, ()),
    (0, 23, ()),
    (1, 31, ()),
    (1, 12, _MONTHS),
    (0, 6, _WEEKDAYS),
)
_PART = re.compile(r"(?:\*|(\d+)(?:-(\d+))?)(?:/(\d+))?")
_LEAP_DAY = ["29", "2"]
#: The hours in which Dagster looks for a clock change, if a schedule has one time of day.
_HOURS_OF_CHANGES = (1, 2, 3)
#: Days cached per schedule.
_MOST_DAYS = 4_000
#: Months without a time after which a schedule has none: the most between two leap days.
_MOST_MONTHS = 8 * 12 + 1
_ONE_DAY = timedelta(days=1)


class _Day(NamedTuple):
    #: Its first moment.
    start: float
    #: Its times, in seconds from there.
    offsets: Sequence[float]
    #: On the day of a clock change, the clock of each time: Dagster names some by an hour that the day does not have.
    clocks: Sequence[datetime] | None = None


@dataclass(frozen=True)
class CronTimes:
    """The times of a schedule. Moments are seconds since 1970 UTC."""

    zone: ZoneInfo
    #: Times of day in seconds, in order.
    of_day: Sequence[int]
    months: frozenset[int]
    #: None for all.
    days: frozenset[int] | None
    weekdays: frozenset[int] | None
    #: Whether it repeats every hour, so that a repeated hour has times of its own.
    is_hourly: bool
    #: Whether Dagster looks for repeated times in a few hours alone.
    is_simple: bool

    @cached_property
    def _days(self) -> dict[date, _Day]:
        return {}

    def at_or_after(self, moment: float) -> float:
        """Raises `ValueError` for a schedule without any time."""
        return next(self.onward(moment))

    def after(self, moment: float) -> float:
        """Raises as `at_or_after`."""
        return next(found for found in self.onward(moment) if found > moment)

    def onward(self, moment: float) -> Iterator[float]:
        """The times from a moment on, in order."""
        day = datetime.fromtimestamp(moment, self.zone).date()
        place = None
        while True:
            found = self._day(day)
            place = bisect_left(found.offsets, moment - found.start) if place is None else 0
            for offset in found.offsets[place:]:
                yield found.start + offset
            day = self._next_day(day, 1)

    def back(self, moment: float) -> Iterator[float]:
        """The times up to a moment, latest first."""
        day = datetime.fromtimestamp(moment, self.zone).date()
        place = None
        while True:
            found = self._day(day)
            place = bisect_right(found.offsets, moment - found.start) if place is None else len(found.offsets)
            for offset in reversed(found.offsets[:place]):
                yield found.start + offset
            day = self._next_day(day, -1)

    def clock(self, moment: float) -> datetime:
        """What the clock shows at a time of the schedule."""
        at = datetime.fromtimestamp(moment, self.zone)
        found = self._day(at.date())
        return at if found.clocks is None else found.clocks[bisect_left(found.offsets, moment - found.start)]

    def _next_day(self, day: date, step: int) -> date:
        """The next day that may have a time, in either direction."""
        n_months = 0
        while n_months < _MOST_MONTHS:
            month = day.month
            day += step * _ONE_DAY
            n_months += day.month != month
            if day.month not in self.months:
                first = day.replace(day=1)
                day = first + 31 * _ONE_DAY if step > 0 else first
                day = day.replace(day=1) - _ONE_DAY if step > 0 else day
            elif self._has(day):
                return day
        raise ValueError("the schedule has no time")

    def _has(self, day: date) -> bool:
        if day.month not in self.months:
            return False
        in_month = self.days is None or day.day in self.days
        in_week = self.weekdays is None or day.isoweekday() % 7 in self.weekdays
        return in_month or in_week if self.days is not None and self.weekdays is not None else in_month and in_week

    def _day(self, day: date) -> _Day:
        if (found := self._days.get(day)) is None:
            if len(self._days) >= _MOST_DAYS:
                self._days.clear()
            found = self._days[day] = self._compute_day(day)
        return found

    def _compute_day(self, day: date) -> _Day:
        midnight = _midnight(day, self.zone)
        start = midnight.timestamp()
        if not self._has(day):
            return _Day(start, ())
        following = _midnight(day + _ONE_DAY, self.zone)
        if midnight.utcoffset() == following.utcoffset():
            return _Day(start, self.of_day)
        if self.is_hourly:
            minutes = {seconds // 60 % 60 for seconds in self.of_day}
            moments = (
                datetime.fromtimestamp(at, self.zone) for at in range(int(start), int(following.timestamp()), 60)
            )
            clocks = [clock for clock in moments if clock.minute in minutes]
        else:
            clocks = [self._moved(midnight + timedelta(seconds=seconds)) for seconds in self.of_day]
        by_offset: dict[float, datetime] = {}
        for clock in clocks:
            offset = clock.timestamp() - start
            # Dagster goes on in time only.
            if not by_offset or offset > next(reversed(by_offset)):
                by_offset[offset] = clock
        return _Day(start, list(by_offset), list(by_offset.values()))

    def _moved(self, clock: datetime) -> datetime:
        """The time that Dagster takes for one that the day has twice or not at all."""
        is_looked_for = clock.hour in _HOURS_OF_CHANGES
        later = clock.replace(fold=1)
        if later.timestamp() > clock.timestamp():
            return later if is_looked_for or not self.is_simple else clock
        if later.timestamp() < clock.timestamp() and is_looked_for:
            # A zone such as Dublin's calls its winter the saving of daylight: then Dagster stays within the gap.
            end = clock.replace(minute=0) + ((clock + timedelta(hours=1)).dst() or timedelta())
            is_folded = self.is_simple and end.hour in _HOURS_OF_CHANGES
            return end.replace(fold=1) if is_folded and _is_twice_or_never(end) else end
        return clock


@lru_cache(maxsize=MAX_UNPACKED)
def cron_times(cron: str, zone: str, since: float) -> CronTimes | None:
    """The times of a schedule from a moment on, None if only Dagster has them.

    That are schedules such as the last Friday of a month or leap days, zones whose clock changes by a part of an hour,
    where Dagster's hours depend on the first hour, or across midnight, or by more than an hour.
    """
    clock, texts = ZoneInfo(zone), _NAMED.get(cron, cron).lower().split()
    if len(texts) != len(_FIELDS) or texts[2:4] == _LEAP_DAY:
        return None
    years = range(datetime.fromtimestamp(since, UTC).year, datetime.now(clock).year + 1)
    if not _keeps_minutes(clock, years) or not all(_keeps_days_apart(clock, year) for year in years):
        return None
    fields = [_values(text, *field) for text, field in zip(texts, _FIELDS, strict=True)]
    minutes, hours, days, months, weekdays = (found or frozenset() for found in fields)
    if None in fields:
        return None
    # A field of all values restricts nothing, except beside a field of days that has no star.
    every_day = texts[2] == "*" or (len(days) == 31 and "*" in texts[4])
    every_weekday = texts[4] == "*" or (len(weekdays) == 7 and "*" in texts[2])
    one_of_month = len(days) == 1 and max(days) <= 28 and every_weekday
    return CronTimes(
        zone=clock,
        of_day=[hour * 3600 + minute * 60 for hour in sorted(hours) for minute in sorted(minutes)],
        months=months,
        days=None if every_day else days,
        weekdays=None if every_weekday else weekdays,
        is_hourly=len(hours) == 24,
        is_simple=len(minutes) == len(hours) == 1 and len(months) == 12 and (every_day or one_of_month),
    )


def _values(text: str, least: int, most: int, names: Sequence[str]) -> frozenset[int] | None:
    """The values of a field, None for a spelling that only Dagster reads."""
    values: set[int] = set()
    for part in text.split(","):
        for number, name in enumerate(names):
            part = part.replace(name, str(number)) if name else part
        if (found := _PART.fullmatch(part)) is None or (names is _WEEKDAYS and found[3]):
            return None
        step = int(found[3] or 1)
        first = int(found[1]) if found[1] else least
        # Sunday is 0 and 7.
        first = 0 if names is _WEEKDAYS and first == 7 and not found[2] else first
        is_open = not found[1] or (found[3] and not found[2])
        last = most if is_open else int(found[2] or first)
        if not (least <= first <= last <= most) or not step or (found[2] and first == last):
            return None
        values.update(range(first, last + 1, step))
    return frozenset(values)


def _is_twice_or_never(clock: datetime) -> bool:
    return clock.replace(fold=0).utcoffset() != clock.replace(fold=1).utcoffset()


@lru_cache(maxsize=MAX_UNPACKED)
def _keeps_days_apart(zone: ZoneInfo, year: int) -> bool:
    """Whether each change of the zone's clock in a year is of at most an hour, and not across midnight."""
    for month in (date(year, number, 1) for number in range(1, 13)):
        after = (month + 31 * _ONE_DAY).replace(day=1)
        if _midnight(month, zone).utcoffset() == _midnight(after, zone).utcoffset():
            continue
        for day in (month + n * _ONE_DAY for n in range((after - month).days)):
            last, following = datetime.combine(day, time(23, 59), zone), _midnight(day + _ONE_DAY, zone)
            seconds = following.timestamp() - _midnight(day, zone).timestamp()
            is_across = max(last.timestamp(), last.replace(fold=1).timestamp()) >= following.timestamp()
            if is_across or abs(seconds - _ONE_DAY.total_seconds()) > 3600:
                return False
    return True


def _midnight(day: date, zone: ZoneInfo) -> datetime:
    return datetime.combine(day, time(), zone)


def _keeps_minutes(zone: ZoneInfo, years: range) -> bool:
    """Whether the minutes of the zone's clock are the same now and in each summer and winter of some years."""
    moments = [datetime(year, month, 1, tzinfo=zone) for year in years for month in (1, 7)]
    found = (datetime.now(zone), *moments)
    return len({(at.utcoffset() or timedelta()) % timedelta(hours=1) for at in found}) == 1
