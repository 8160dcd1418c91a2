"""The bounds of numbers in settings: databases, threads and clocks hold no larger ones."""

from __future__ import annotations

from typing import Final

#: The largest that the integer column of each database holds; of seconds 68 years.
MAX_NUMBER: Final = 2**31 - 1


def why_out_of_bounds(value: float, least: int) -> str:
    """The bound that a number does not keep, in words; empty if it keeps both. NaN keeps none."""
    if not value >= least:
        return f"it must be at least {least}"
    return "" if value <= MAX_NUMBER else f"it must be at most {MAX_NUMBER:,}"
