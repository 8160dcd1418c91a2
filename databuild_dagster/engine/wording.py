"""Times, durations and pauses as people write and read them, and records in JSON (rules 15)."""

import re
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from typing import Any, Final, overload

import msgspec

from databuild_dagster.model.pauses import PauseInForce
from databuild_dagster.model.records import Time
from databuild_dagster.model.rows import NEVER, PauseRow
from databuild_dagster.model.wording import LAST_TIME, MAX_DIGITS, has_date, one_line, shortened, typed

#: Values of rows, whose readers give them their text.
_NO_RECORDS: Final = (bytes, datetime, date, time, timedelta, Decimal)
_DURATION: Final = re.compile(r"(\d+(?:\.\d+)?)\s*([smhd]?)")
_SECONDS: Final = {"s": 1, "m": 60, "h": 3600, "d": 86400}
#: A hundred years: a longer wait or span has no use, and the clocks of a system cannot hold every one.
MAX_SECONDS: Final = 36_500 * 86_400.0
#: The advice for a time, and for a time or its distance from now.
TIME: Final = "2026-11-21T14:00:00Z"
TIME_OR_DISTANCE: Final = f"{TIME}, or 90s, 15m, 12h, 7d"


@overload
def when(at: float) -> str: ...
@overload
def when(at: None) -> None: ...
def when(at: float | None) -> str | None:
    """ISO 8601, UTC, to the second; None for no time."""
    if at is None:
        return None
    # Not strftime: it asks the system for the local time zone each time, which took a sixth of an `explain`.
    return dateless(at) if not has_date(at) else datetime.fromtimestamp(at, UTC).isoformat()[:19] + "Z"


def exactly(at: float) -> str:
    """To the microsecond."""
    return dateless(at) if not has_date(at) else datetime.fromtimestamp(at, UTC).isoformat().replace("+00:00", "Z")


def pause_in_words(ref: str, pause: PauseInForce | PauseRow) -> str:
    """By a person, since and until when, and why, as the rest of a sentence that begins with the ref."""
    whole = "" if pause.ref == ref else f" with all of {pause.ref}"
    until = "" if pause.until == NEVER else f" until {when(pause.until)}"
    return f"paused{whole} by {pause.actor} since {when(pause.paused_at)}{until}: {one_line(pause.reason)}"


def to_retry(ref: str) -> str:
    """The command that opens a failed ref, or the failures behind it."""
    return f"`databuild retry {typed(ref)}` opens what failed first"


def to_resume(pause: PauseInForce) -> str:
    """The command that ends a pause."""
    return f"`databuild resume {typed(pause.resumed_by)}` ends the pause"


def dateless(at: float) -> str:
    """A time outside of the calendar, which old logs may hold."""
    if at > LAST_TIME:
        return "after the year 9999"
    return "before the year 1" if at < 0 else "at no time"


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


def json_of(value: Any) -> Any:
    """Records, however deep in lists and dictionaries, as JSON has them."""
    return msgspec.to_builtins(value, enc_hook=encoded, builtin_types=_NO_RECORDS)


def encoded(value: object) -> str:
    """What JSON has no type for."""
    return when(value) if isinstance(value, Time) else str(value)


def schema_of(kind: type) -> dict[str, str]:
    """The JSON schema of what `encoded` makes."""
    return {"type": "string"}
