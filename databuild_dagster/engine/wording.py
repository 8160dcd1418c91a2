"""Times, and pauses, in messages and in JSON."""

from __future__ import annotations

from datetime import UTC, datetime

from databuild_dagster.model.pauses import PauseInForce
from databuild_dagster.model.rows import NEVER, PauseRow
from databuild_dagster.model.wording import LAST_TIME, has_date, one_line, typed


def when(at: float) -> str:
    """ISO 8601, UTC, to the second."""
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
