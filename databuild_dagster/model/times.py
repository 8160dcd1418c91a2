"""Which moments have a date: those of the years 1 to 9999, in calendars as in every program that reads what we print.

What is recorded stays for ever, so a time beyond them is refused before it is. Times are seconds since 1970 UTC.
"""

from __future__ import annotations

#: 0001-01-01T00:00:00Z and 9999-12-31T23:59:59Z.
FIRST_TIME = -62_135_596_800.0
LAST_TIME = 253_402_300_799.0


def has_date(at: float) -> bool:
    """Whether there is a date for a time; never for infinity, and for what is no number."""
    return FIRST_TIME <= at <= LAST_TIME
