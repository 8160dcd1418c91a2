"""How messages name several things: a few of them, and how many more there are."""

from __future__ import annotations

from collections.abc import Sequence

#: Letters of somebody else's text, such as an exception's, that go into a sentence of ours.
MAX_QUOTED = 300


def few_of(names: Sequence[str], most: int = 5) -> str:
    """Such as: a, b, c and 4 more."""
    more = len(names) - most
    return ", ".join(names[:most]) + (f" and {more} more" if more > 0 else "")


def counted(n: int, noun: str) -> str:
    """For example: 1 file, 4 files."""
    return f"{n} {noun}" if n == 1 else f"{n} {noun}s"


def one_line(text: object, most: int | None = MAX_QUOTED) -> str:
    """A text of several lines, such as an exception's, as part of a sentence; None for all of it."""
    return " ".join(str(text).split())[:most]
