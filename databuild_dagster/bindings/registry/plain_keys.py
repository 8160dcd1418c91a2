"""The partition keys of common definitions, computed from their texts without Dagster, whose import takes a second.

The common definitions are static keys, windows of a fixed length in UTC, days, weeks and months that begin at midnight, and
combinations of them. Every other definition, such as a dynamic definition or windows with exclusions, is left to Dagster.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from datetime import UTC, date, datetime, time, timedelta
from functools import lru_cache
from itertools import product
from typing import Any
from zoneinfo import ZoneInfo

from databuild_dagster.model.datasets import MAX_UNPACKED

_ONE_DAY = timedelta(days=1)
#: Dagster's class of a definition whose partitions are windows of time.
_WINDOWS = "ExternalTimeWindowPartitionsDefinitionData"
#: Schedules of windows of a fixed length, which only UTC has: every N minutes, an hour from a minute, a day from a time.
_MINUTES, _HOUR, _DAY = (
    re.compile(r"\*/(\d+) \* \* \* \*"),
    re.compile(r"(\d+) \* \* \* \*"),
    re.compile(r"(\d+) (\d+) \* \* \*"),
)
#: Days from midnight: every day, a day of the month, or a day of the week with Sunday as 0.
_MIDNIGHTS = re.compile(r"0 0 (\*|\d+) \* (\*|[0-6])")
#: A key format of which the time of day is a part. A clock change may move midnight.
_HAS_CLOCK = re.compile(r"%[HIMSfpzZcXs]")


def plain_keys(partitions: str, now: float) -> list[str] | None:
    """The keys that exist, in definition order; None if only Dagster can compute them."""
    dimensions = plain_dimensions(partitions, now)
    return None if dimensions is None else ["|".join(parts) for parts in product(*dimensions)]


def plain_dimensions(partitions: str, now: float) -> list[list[str]] | None:
    """The keys of each dimension, a single list for most definitions; None if only Dagster can compute them."""
    keys = [_keys(snap, now) for snap in _dimensions(partitions)]
    along = [found for found in keys if found is not None]
    return along if len(along) == len(keys) else None


def dynamic_name(partitions: str) -> str | None:
    """The name of a dynamic definition, under which Dagster stores its keys; None for others."""
    snap = _decoded(partitions)
    return snap["name"] if snap["__class__"] == "ExternalDynamicPartitionsDefinitionData" else None


def dimensions_of_time(partitions: str) -> list[bool]:
    """For each dimension, whether its partitions are windows of time."""
    return [snap["__class__"] == _WINDOWS for snap in _dimensions(partitions)]


def _dimensions(partitions: str) -> list[dict[str, Any]]:
    snap = _decoded(partitions)
    if snap["__class__"] != "ExternalMultiPartitionsDefinitionData":
        return [snap]
    dimensions = sorted(snap["external_partition_dimension_definitions"], key=lambda found: found["name"])
    return [dimension["external_partitions_def_data"] for dimension in dimensions]


@lru_cache(maxsize=MAX_UNPACKED)
def _decoded(partitions: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(partitions)
    return found


def _keys(snap: dict[str, Any], now: float) -> list[str] | None:
    match snap["__class__"]:
        case "ExternalStaticPartitionsDefinitionData":
            return list(snap["partition_keys"])
        case name if name == _WINDOWS:
            # Dagster has rules of its own for a definition that ends within its first window.
            return _window_keys(snap, now) or None
        case _:
            return None


def _window_keys(snap: dict[str, Any], now: float) -> list[str] | None:
    zone, fmt, cron = snap["timezone"] or "UTC", snap["fmt"], snap["cron_schedule"]
    if _is_special(snap) or (zone != "UTC" and _HAS_CLOCK.search(fmt)):
        return None
    if (fixed := _fixed_windows(snap, now)) is not None:
        numbers, seconds, offset = fixed
        return [datetime.fromtimestamp(number * seconds + offset, UTC).strftime(fmt) for number in numbers]
    end = now if snap["end"] is None else min(now, snap["end"])
    midnights = _MIDNIGHTS.fullmatch(cron)
    if midnights is None or (midnights[1] != "*" and (midnights[2] != "*" or int(midnights[1]) > 28)):
        return None
    days = _days_between(snap["start"], end, ZoneInfo(zone))
    chosen = [
        day for day in days if midnights[1] in ("*", str(day.day)) and midnights[2] in ("*", str(day.isoweekday() % 7))
    ]
    # The last one ends a window and begins none that has passed.
    return [day.strftime(fmt) for day in chosen[:-1]]


def _is_special(snap: dict[str, Any]) -> bool:
    return bool(snap["exclusions"] or snap["end_offset"] or snap["cron_schedule"] is None)


def _fixed_windows(snap: dict[str, Any], now: float) -> tuple[range, int, int] | None:
    """The windows of a fixed length in UTC, counted from 1970, with their seconds and their offset."""
    if (snap["timezone"] or "UTC") != "UTC" or (length := _fixed_length(snap["cron_schedule"])) is None:
        return None
    seconds, offset = length
    end = now if snap["end"] is None else min(now, snap["end"])
    return range(-int((offset - snap["start"]) // seconds), int((end - offset) // seconds)), seconds, offset


def last_window(partitions: str, now: float) -> int | None:
    """The number of the last existing window of a fixed length in UTC: with it, the same keys exist. None for other keys."""
    snap = _decoded(partitions)
    if snap["__class__"] != "ExternalTimeWindowPartitionsDefinitionData" or _is_special(snap):
        return None
    fixed = _fixed_windows(snap, now)
    return fixed[0][-1] if fixed is not None and fixed[0] else None


def _fixed_length(cron: str) -> tuple[int, int] | None:
    """The seconds of a window, and the offset of its beginning."""
    if (found := _MINUTES.fullmatch(cron)) and 60 % (int(found[1]) or 7) == 0:
        return int(found[1]) * 60, 0
    if found := _HOUR.fullmatch(cron):
        return 3600, int(found[1]) * 60
    if found := _DAY.fullmatch(cron):
        return 86400, int(found[2]) * 3600 + int(found[1]) * 60
    return None


def _days_between(start: float, end: float, zone: ZoneInfo) -> Iterator[date]:
    """The days whose midnight is from `start` up to `end`, both included."""
    day = datetime.fromtimestamp(start, zone).date()
    while (midnight := datetime.combine(day, time(), zone).timestamp()) <= end:
        if midnight >= start:
            yield day
        day += _ONE_DAY
