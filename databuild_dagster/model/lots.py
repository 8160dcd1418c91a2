"""Lots: intervals of UTC days, and their ids, both ways (rule 10.1).

A lot id is a date, a unit and the number of the interval within its day: `20230227PT5M287` is from 23:55 on that day up to
midnight, exclusive. Every unit divides the day, so a lot is the number of its units since 1970, and all computations use that
number. Moments are Unix seconds. The module knows no present time and no partition key.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from heapq import heapify, heapreplace
from math import floor, isfinite

from databuild_dagster.model.errors import Refused
from databuild_dagster.model.refs import Ref

DAY_SECONDS = 86_400
#: Digits of the number of an interval.
DIGITS = 3
#: Parts of a lot at most: each has its own call, manifest and files.
MAX_PARTS = 1000


@dataclass(frozen=True, slots=True)
class LotUnit:
    """The length of a lot. Lots are half-open: the next lot begins where a lot ends."""

    #: The ISO 8601 duration in a lot id.
    token: str
    seconds: int
    #: The name of its intervals in a report.
    name: str

    @property
    def per_day(self) -> int:
        return DAY_SECONDS // self.seconds

    @property
    def last(self) -> str:
        """The number of a day's last lot; the first is 000."""
        return f"{self.per_day - 1:0{DIGITS}}"

    def __str__(self) -> str:
        return self.token


#: All units, the shortest first.
UNITS = {
    unit.token: unit
    for unit in (
        LotUnit("PT5M", 300, "twelfths of an hour"),
        LotUnit("PT10M", 600, "sixths of an hour"),
        LotUnit("PT15M", 900, "fourths of an hour"),
        LotUnit("PT1H", 3_600, "hours"),
        LotUnit("P1D", DAY_SECONDS, "days"),
    )
}


@dataclass(frozen=True, slots=True)
class Cadence:
    """How often an interval begins: the length of a lot unit, or a length without Clusterless lots, such as a month."""

    #: The ISO 8601 duration, or the cron schedule of intervals without a duration.
    unit: str
    #: The usual length of an interval. Clock changes and calendars make some of them longer or shorter.
    seconds: float
    #: The time zone of its days.
    timezone: str = "UTC"

    def __str__(self) -> str:
        return self.unit if self.timezone == "UTC" else f"{self.unit} in {self.timezone}"


_NUMBERS = ", ".join(f"{unit} 000–{unit.last}" if unit.per_day > 1 else f"{unit} 000" for unit in UNITS.values())
_SHAPE = re.compile(rf"([0-9]{{4}})([0-9]{{2}})([0-9]{{2}})({'|'.join(UNITS)})([0-9]{{{DIGITS}}})")
_MONTHS = (
    *("January", "February", "March", "April", "May", "June"),
    *("July", "August", "September", "October", "November", "December"),
)


class InvalidLot(Refused):
    """{text!r} is not a lot id: {why}."""

    hint = (
        "Write yyyyMMdd, the unit, and three digits for the interval of the UTC day, as in 20230227PT5M287 "
        f"({_NUMBERS})."
    )


class InvalidMoment(Refused):
    """{moment} is in no lot: {why}."""

    hint = "Give Unix seconds within the years 1 to 9999."


class InvalidLotRange(Refused):
    """The range of lots from {start} to {end} is not possible: {why}."""

    hint = "Both ends are rounded down to the start of an interval; the range excludes its end."


@dataclass(frozen=True, slots=True)
class Lot:
    """An interval."""

    unit: LotUnit
    #: The lots of its unit from 1970 up to it; negative before 1970.
    index: int

    @classmethod
    def parse(cls, text: str) -> Lot:
        """The lot of an id, which has a single spelling. Raises `InvalidLot`."""
        found = _SHAPE.fullmatch(text)
        if found is None:
            raise InvalidLot(text=text, why=_why_not_the_shape(text))
        year, month, day = int(found[1]), int(found[2]), int(found[3])
        unit, number = UNITS[found[4]], int(found[5])
        if why := _why_not_a_date(year, month, day):
            raise InvalidLot(text=text, why=why)
        if number >= unit.per_day:
            only = f"000 to {unit.last}" if unit.per_day > 1 else "000"
            raise InvalidLot(text=text, why=f"a day has {unit} {only}, and no {found[5]}")
        return cls(unit, day_number(year, month, day) * unit.per_day + number)

    @property
    def start(self) -> int:
        """Its first second."""
        return self.index * self.unit.seconds

    @property
    def end(self) -> int:
        """Its end, exclusive."""
        return self.start + self.unit.seconds

    def __str__(self) -> str:
        day, number = divmod(self.index, self.unit.per_day)
        return _id(_date(day), self.unit, number)


@dataclass(frozen=True, slots=True)
class LotRange:
    """Consecutive lots of a unit, from `first` up to `stop`, exclusive. May be empty."""

    unit: LotUnit
    first: int
    stop: int

    def __len__(self) -> int:
        return max(self.stop - self.first, 0)

    def __iter__(self) -> Iterator[Lot]:
        return (Lot(self.unit, index) for index in range(self.first, self.stop))

    def __contains__(self, lot: object) -> bool:
        return isinstance(lot, Lot) and lot.unit == self.unit and self.first <= lot.index < self.stop

    def at(self, place: int) -> Lot:
        """The lot at a place, as of a list: a negative place counts from the end."""
        return Lot(self.unit, range(self.first, self.stop)[place])

    @property
    def start(self) -> int:
        """The first second of its first lot."""
        return self.first * self.unit.seconds

    @property
    def end(self) -> int:
        """The end of its last lot, exclusive."""
        return self.stop * self.unit.seconds

    def ids(self) -> Iterator[str]:
        """The lot ids in order. A date is computed once a day, because a year has a hundred thousand lots."""
        per_day = self.unit.per_day
        numbers = [_id("", self.unit, number) for number in range(per_day)]
        for day in range(self.first // per_day, -(-self.stop // per_day)):
            date, before = _date(day), day * per_day
            yield from [date + number for number in numbers[max(self.first - before, 0) : max(self.stop - before, 0)]]


def lot_at(moment: float, unit: LotUnit) -> Lot:
    """The lot that a moment is in. Raises `InvalidMoment`."""
    return Lot(unit, floor(_checked(moment)) // unit.seconds)


def lots_between(start: float, end: float, unit: LotUnit) -> LotRange:
    """The lots from `start` to `end`, both rounded down to the start of their interval (rule 10.7).

    The lot that begins at `end` is excluded. Raises `InvalidLotRange` when the end is before the start, and `InvalidMoment`.
    """
    if start > end:
        raise InvalidLotRange(start=start, end=end, why="it ends before it begins")
    # The end of the last day is a valid end, although no lot begins there.
    stop = END_SECOND // unit.seconds if end == END_SECOND else lot_at(end, unit).index
    return LotRange(unit, lot_at(start, unit).index, stop)


def balanced(sizes: Mapping[str, int], n_bins: int) -> list[tuple[str, ...]]:
    """Files by size, dealt whole to at most `n_bins` bins of about the same weight (rule 10.4); the same for the same files.

    The largest file first, each to the lightest bin (Graham's LPT rule): no two bins differ by more than the largest file, and
    the heaviest is at most a third above the optimum. No bin is empty.
    """
    assert n_bins >= 1, n_bins
    bins: list[list[str]] = [[] for _ in range(min(n_bins, len(sizes)))]
    # By bytes, then by the number of files, so that empty files are dealt out too.
    weights = [(0, 0, number) for number in range(len(bins))]
    heapify(weights)
    for name in sorted(sizes, key=lambda name: (-sizes[name], name)):
        total_bytes, n_files, number = weights[0]
        bins[number].append(name)
        heapreplace(weights, (total_bytes + sizes[name], n_files + 1, number))
    return [tuple(sorted(names)) for names in bins]


def day_number(year: int, month: int, day: int) -> int:
    """Days from 1970-01-01 to an existing date of the proleptic Gregorian calendar."""
    # A year that begins in March has its leap day at its end.
    years = year - (month <= 2)
    day_of_year = (153 * ((month + 9) % 12) + 2) // 5 + day - 1
    return years * 365 + years // 4 - years // 100 + years // 400 + day_of_year - 719_468


def date_of(day: int) -> tuple[int, int, int]:
    """Year, month and day of a day number: the inverse of `day_number`."""
    day += 719_468
    era, day_of_era = divmod(day, 146_097)
    year_of_era = (day_of_era - day_of_era // 1_460 + day_of_era // 36_524 - day_of_era // 146_096) // 365
    day_of_year = day_of_era - (365 * year_of_era + year_of_era // 4 - year_of_era // 100)
    month = (5 * day_of_year + 2) // 153
    return (era * 400 + year_of_era + (month >= 10), (month + 2) % 12 + 1, day_of_year - (153 * month + 2) // 5 + 1)


#: The seconds that a lot id can name, with four digits for the year; the end is exclusive.
FIRST_SECOND = day_number(1, 1, 1) * DAY_SECONDS
END_SECOND = (day_number(9999, 12, 31) + 1) * DAY_SECONDS


def _checked(moment: float) -> float:
    if not isfinite(moment):
        raise InvalidMoment(moment=moment, why="it is not a number of seconds")
    if not FIRST_SECOND <= moment < END_SECOND:
        raise InvalidMoment(moment=moment, why="its year has no four digits")
    return moment


def _id(date: str, unit: LotUnit, number: int) -> str:
    return f"{date}{unit.token}{number:0{DIGITS}}"


def _date(day: int) -> str:
    year, month, day_of_month = date_of(day)
    return f"{year:04}{month:02}{day_of_month:02}"


def _why_not_the_shape(text: str) -> str:
    """The first fault from the left."""
    if not re.match("[0-9]{8}", text):
        return "it does not begin with a date in eight digits"
    rest = text[8:]
    token = next((token for token in UNITS if rest.startswith(token)), None)
    if token is not None:
        return f"three digits must follow {token}, and it has {rest[len(token) :]!r}"
    if any(rest.upper().startswith(token) for token in UNITS):
        return "its unit is written in capital letters"
    return f"its date is not followed by one of the units {', '.join(UNITS)}"


def _why_not_a_date(year: int, month: int, day: int) -> str | None:
    if year == 0:
        return "there is no year 0"
    if not 1 <= month <= 12:
        return f"there is no month {month:02}"
    days = day_number(year + month // 12, month % 12 + 1, 1) - day_number(year, month, 1)
    if not 1 <= day <= days:
        return f"there is no {day} {_MONTHS[month - 1]} {year}"
    return None


#: Lots of a report.
MAX_LOTS = 1_000_000


class TooManyLots(Refused):
    """A report on {asset} from {start} to {end} would have about {n:,} lots, more than {most:,}."""

    hint = "Ask for a shorter range."


@dataclass(frozen=True)
class Expected:
    """The lots of a dataset that a range should have, each with its ref."""

    asset: str
    cadence: Cadence
    #: The start of the first lot and the end of the last lot; the same moment without lots.
    start: float
    end: float
    #: Lot ids, refs and first moments in the order of time, without the lots that the definition leaves out. A lot that has
    #: no id has its partition key for it.
    ids: Sequence[str]
    refs: Sequence[Ref]
    starts: Sequence[float]
    #: Lots of the range before the cadence's first, or not over yet.
    n_outside: int = 0
