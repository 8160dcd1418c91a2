"""Times in messages and in JSON."""

from __future__ import annotations

from datetime import UTC, datetime

from databuild_dagster.model.wording import LAST_TIME, has_date


def when(at: float) -> str:
    """ISO 8601, UTC, to the second."""
    # Not strftime: it asks the system for the local time zone each time, which took a sixth of an `explain`.
    return dateless(at) if not has_date(at) else datetime.fromtimestamp(at, UTC).isoformat()[:19] + "Z"


def exactly(at: float) -> str:
    """To the microsecond."""
    return dateless(at) if not has_date(at) else datetime.fromtimestamp(at, UTC).isoformat().replace("+00:00", "Z")


def dateless(at: float) -> str:
    """A time outside of the calendar, which old logs may hold."""
    if at > LAST_TIME:
        return "after the year 9999"
    return "before the year 1" if at < 0 else "at no time"
