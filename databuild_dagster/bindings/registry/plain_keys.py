"""The partition keys of common definitions, computed from their texts without Dagster, whose import takes a second.

The common definitions are static keys, windows of time by a schedule that `cron_times` has, and combinations of them. Every
other definition, such as a dynamic definition, is left to Dagster.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from functools import lru_cache
from itertools import islice, product, takewhile
from typing import Any, NamedTuple

from databuild_dagster.bindings.registry.cron_times import CronTimes, cron_times
from databuild_dagster.model.datasets import MAX_UNPACKED
from databuild_dagster.model.selections import Keys, ListedKeys

#: Dagster's class of a definition whose partitions are windows of time.
_WINDOWS = "ExternalTimeWindowPartitionsDefinitionData"
_OFFSET = "%z"


class TimeKeys(NamedTuple):
    """The windows of a definition and their keys, as Dagster has them. A window is named by its first moment."""

    times: CronTimes
    fmt: str
    start: float
    end: float | None
    end_offset: int
    exclusions: tuple[CronTimes | float, ...]

    def start_of(self, key: str) -> float | None:
        """The window of a key, which may not exist yet; None for a text that is no key."""
        try:
            found = self.times.at_or_after(self._read(key))
        except (ValueError, OverflowError):
            return None
        return found if self.key_of(found) == key and not self._is_excluded(found) else None

    def key_of(self, start: float) -> str:
        clock = self.times.clock(start)
        # The second one of a repeated hour.
        has_offset = clock.fold and self.times.is_hourly and _OFFSET not in self.fmt
        return clock.strftime(self.fmt + _OFFSET if has_offset else self.fmt)

    def line(self, now: float) -> TimeLine:
        """The keys that exist then."""
        return TimeLine(self, self.bounds(now))

    def between(self, first: float, last: float) -> list[str]:
        """The keys of two windows and of those between them."""
        return [self.key_of(start) for start in takewhile(lambda start: start <= last, self.onward(first))]

    def bounds(self, now: float) -> tuple[float, float] | None:
        """The first and the last window that exist. The last one is before the first one of a definition that ends within it."""
        first = next(self.onward(self.start))
        ends, end = self.times.after(first), self.end
        if end is not None and end <= self.start:
            return None
        if not self.end_offset:
            last = next(self._ended_by(now if end is None else min(now, end)))
            return (first, last) if ends <= now else None
        n = abs(self.end_offset)
        ended = self._ended_by(now)
        if self.end_offset > 0:
            exists = ends <= _nth(self.onward(now), n)
            last = _nth(self.onward(self.times.after(next(ended))), n - 1)
        else:
            ended_before = list(islice(ended, n + 1))
            exists = ends <= ended_before[-2]
            last = ended_before[-1]
        if not exists:
            return None
        last_of_all = None if end is None else next(self._ended_by(end))
        return first, last_of_all if last_of_all is not None and last_of_all <= last else max(first, last)

    def _read(self, key: str) -> float:
        """The moment that a text names, of an ambiguous time the earlier one. Raises `ValueError`."""
        try:
            clock = datetime.strptime(key, self.fmt)
        except ValueError:
            if _OFFSET in self.fmt:
                raise
            clock = datetime.strptime(key, self.fmt + _OFFSET)
        return (clock if clock.tzinfo else clock.replace(tzinfo=self.times.zone)).timestamp()

    def onward(self, moment: float) -> Iterator[float]:
        """The windows that begin at a moment or later, also those that do not exist yet."""
        return (start for start in self.times.onward(moment) if not self._is_excluded(start))

    def _ended_by(self, moment: float) -> Iterator[float]:
        """The windows that have ended, latest first."""
        starts = self.times.back(moment)
        next(starts)
        return (start for start in starts if not self._is_excluded(start))

    def _is_excluded(self, start: float) -> bool:
        return any(start == (one if isinstance(one, float) else one.at_or_after(start)) for one in self.exclusions)


class TimeLine(NamedTuple):
    """The keys of a definition that exist at a time, each computed when it is asked for."""

    keys: TimeKeys
    bounds: tuple[float, float] | None

    def place_of(self, key: str) -> float | None:
        if self.bounds is None or (start := self.keys.start_of(key)) is None:
            return None
        return start if self.bounds[0] <= start <= self.bounds[1] else None

    def between(self, first: float, last: float) -> Sequence[str]:
        return self.keys.between(first, last)

    def all(self) -> Sequence[str]:
        # Dagster lists the first window also if it is not over at the definition's end.
        return [] if self.bounds is None else self.between(self.bounds[0], max(self.bounds))


def _nth(found: Iterable[float], n: int) -> float:
    return next(islice(found, n, None))


@lru_cache(maxsize=MAX_UNPACKED)
def time_keys(
    cron: str,
    zone: str,
    fmt: str,
    start: float,
    end: float | None,
    end_offset: int,
    exclusions: tuple[str | float, ...],
) -> TimeKeys | None:
    """The windows of a definition, None if only Dagster can compute them."""
    times = cron_times(cron, zone, start)
    excluded = [cron_times(one, zone, start) if isinstance(one, str) else one for one in exclusions]
    known = [one for one in excluded if one is not None]
    if times is None or len(known) < len(excluded):
        return None
    return TimeKeys(times, fmt, start, end, end_offset, tuple(known))


class Dimension(NamedTuple):
    """A dimension of a definition; most definitions have a single one, without a name."""

    name: str | None
    definition: Mapping[str, Any]
    keys: Keys


def plain_keys(partitions: str, now: float) -> list[str] | None:
    """The keys that exist, in definition order; None if only Dagster can compute them."""
    dimensions = plain_dimensions(partitions, now)
    return (
        None if dimensions is None else ["|".join(parts) for parts in product(*(one.keys.all() for one in dimensions))]
    )


def plain_dimensions(partitions: str, now: float) -> list[Dimension] | None:
    """The dimensions with the keys that exist; None if only Dagster can compute them."""
    along: list[Dimension] = []
    for name, snap in _dimensions(partitions):
        if (keys := _keys(snap, now)) is None:
            return None
        along.append(Dimension(name, snap, keys))
    return along


def plainly_has(dimensions: Sequence[Dimension], key: str) -> bool:
    """Whether the dimensions surely have the key. Dagster has to judge every other key."""
    parts = key.split("|") if len(dimensions) > 1 else [key]
    return len(parts) == len(dimensions) and all(
        one.keys.place_of(part) is not None for one, part in zip(dimensions, parts, strict=True)
    )


def longest_dimension(are_of_time: Sequence[bool]) -> int:
    """The dimension along which a single Dagster run can have a range of keys."""
    return are_of_time.index(True) if True in are_of_time else len(are_of_time) - 1


def lines_along(
    keys: Iterable[str], n_dimensions: int, along: int, place_of: Callable[[str], float]
) -> list[list[str]]:
    """The keys that differ only in the dimension `along`, ordered there."""
    lines: dict[tuple[str, ...], list[tuple[float, str]]] = {}
    for key in keys:
        parts = key.split("|") if n_dimensions > 1 else [key]
        lines.setdefault((*parts[:along], *parts[along + 1 :]), []).append((place_of(parts[along]), key))
    return [[key for _, key in sorted(line)] for line in lines.values()]


def dynamic_name(partitions: str) -> str | None:
    """The name of dynamic partitions, None for other partitions."""
    snap = _decoded(partitions)
    return snap["name"] if snap["__class__"] == "ExternalDynamicPartitionsDefinitionData" else None


def dimensions_of_time(partitions: str) -> list[bool]:
    """For each dimension, whether its partitions are windows of time."""
    return [snap["__class__"] == _WINDOWS for _, snap in _dimensions(partitions)]


def last_window(partitions: str, now: float) -> float | None:
    """The last existing window: with it, the same keys exist. None for other keys than windows of time."""
    snap = _decoded(partitions)
    found = _windows(snap) if snap["__class__"] == _WINDOWS else None
    bounds = None if found is None else found.bounds(now)
    return None if bounds is None else bounds[1]


def _dimensions(partitions: str) -> list[tuple[str | None, dict[str, Any]]]:
    snap = _decoded(partitions)
    if snap["__class__"] != "ExternalMultiPartitionsDefinitionData":
        return [(None, snap)]
    dimensions = sorted(snap["external_partition_dimension_definitions"], key=lambda found: found["name"])
    return [(dimension["name"], dimension["external_partitions_def_data"]) for dimension in dimensions]


@lru_cache(maxsize=MAX_UNPACKED)
def _decoded(partitions: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(partitions)
    return found


def _keys(snap: dict[str, Any], now: float) -> Keys | None:
    match snap["__class__"]:
        case "ExternalStaticPartitionsDefinitionData":
            return ListedKeys(snap["partition_keys"])
        case name if name == _WINDOWS:
            return None if (windows := _windows(snap)) is None else windows.line(now)
        case _:
            return None


def _windows(snap: dict[str, Any]) -> TimeKeys | None:
    if (cron := snap["cron_schedule"]) is None:
        return None
    exclusions = tuple(one if isinstance(one, str) else one["timestamp"] for one in snap["exclusions"] or ())
    zone, end = snap["timezone"] or "UTC", snap["end"]
    return time_keys(cron, zone, snap["fmt"], snap["start"], end, snap["end_offset"], exclusions)
