"""How messages name several things: a few of them, and how many more there are."""

from __future__ import annotations

from collections.abc import Sequence


def few_of(names: Sequence[str], most: int = 5) -> str:
    """Such as: a, b, c and 4 more."""
    more = len(names) - most
    return ", ".join(names[:most]) + (f" and {more} more" if more > 0 else "")
