"""Durations and times as a person writes them: 90s, 15m, 12h, 7d, none, and ISO 8601 with an offset."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import Final

from databuild_dagster.model.wording import MAX_DIGITS, shortened

_DURATION: Final = re.compile(r"(\d+(?:\.\d+)?)\s*([smhd]?)")
_SECONDS: Final = {"s": 1, "m": 60, "h": 3600, "d": 86400}
#: A hundred years: a longer wait or span has no use, and the clocks of a system cannot hold every one.
MAX_SECONDS: Final = 36_500 * 86_400.0
#: The advice for a time, and for a time or its distance from now.
TIME: Final = "2026-11-21T14:00:00Z"
TIME_OR_DISTANCE: Final = f"{TIME}, or 90s, 15m, 12h, 7d"


def seconds_of(text: str) -> float | None:
    """The seconds of a duration; None for `none`. Raises `ValueError` with a sentence."""
    written = text.strip().lower()
    if written == "none":
        return None
    match = _DURATION.fullmatch(written)
    if match is None or float(match[1]) == 0:
        raise ValueError(f"{text!r} is no duration; write 90s, 15m, 12h, 7d or none.")
    seconds = float(match[1]) * _SECONDS[match[2] or "s"]
    if seconds > MAX_SECONDS:
        raise ValueError(f"{shortened(text, MAX_DIGITS)!r} is too long; write at most 36500d, or none.")
    return seconds


def time_of(text: str, examples: str = TIME) -> float:
    """A time with an offset as seconds since 1970 UTC. Raises `ValueError` with a sentence."""
    try:
        local = datetime.fromisoformat(text.strip())
    except ValueError:
        raise ValueError(f"{text!r} is no time; write {examples}.") from None
    if local.utcoffset() is None:
        raise ValueError(f"{text!r} does not say in which time zone; write {examples}.")
    try:
        return local.astimezone(UTC).timestamp()
    except OverflowError:
        raise ValueError(f"{text!r} lies outside of the years 1 to 9999.") from None


def time_from(text: str, now: float, direction: int) -> float | None:
    """A time, or its distance from now: into the past for -1, into the future for 1; None for the distance `none`.

    Raises `ValueError` with a sentence, also for a time that has passed where the future is asked for.
    """
    if _DURATION.fullmatch(text.strip().lower()):
        seconds = seconds_of(text)
        return None if seconds is None else now + direction * seconds
    at = time_of(text, TIME_OR_DISTANCE)
    if direction > 0 and at <= now:
        raise ValueError(f"{text!r} has passed; it must be later than now.")
    return at
