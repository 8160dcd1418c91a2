"""Row ids follow the log: an id is the seq of the event that made the row, and a number within it."""

from __future__ import annotations

#: Rows that one event may make: a million. Leaves 43 bits for the seq.
ROWS_PER_EVENT_BITS = 20


def first_id(seq: int) -> int:
    return seq << ROWS_PER_EVENT_BITS


def end_of_event(row_id: int) -> int:
    """Above every id that is born of the same event."""
    return first_id((row_id >> ROWS_PER_EVENT_BITS) + 1)
