"""The log read event by event: what can be seen of each by itself, and by the event before it (SPEC 3.1).

What an event means is not asked here: the fold finds out. Seqs and times are questions to the table, in `invariants`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import msgspec

from databuild_dagster.store import log
from databuild_dagster.store.backends.base import Connection
from databuild_dagster.store.codec import decode, unknown_fields
from databuild_dagster.store.invariants import Violation

#: Events that are reported one by one; where there are more, the log as a whole is wrong.
MOST_EVENTS = 20
#: Events read at once.
PAGE = 1000


class _Stored(NamedTuple):
    """An event as the table has it."""

    seq: int
    at: float
    type: str
    version: int
    command_id: str
    actor: str
    payload: str


def audit(connection: Connection) -> list[Violation]:
    """Events that cannot be read, say what has no meaning, or do not go with the one before them."""
    found: list[Violation] = []
    before: _Stored | None = None
    for event in _stored(connection):
        wrong = [*_misread(event), *_misplaced(event, before)]
        found += [Violation("SPEC 3.1", f"seq {event.seq}", f"{event.type}: {each}") for each in wrong]
        before = event
        if len(found) >= MOST_EVENTS:
            found.append(Violation("SPEC 3.1", "log", f"is not looked at behind seq {event.seq}"))
            break
    return found


def _stored(connection: Connection) -> Iterator[_Stored]:
    seq = 0
    while rows := connection.execute(f"{log.READ} WHERE seq > ? ORDER BY seq LIMIT ?", (seq, PAGE)).fetchall():
        yield from map(_Stored._make, rows)
        seq = rows[-1][0]


def _misread(event: _Stored) -> Iterator[str]:
    try:
        decode(event.type, event.version, event.payload)
    except (msgspec.MsgspecError, LookupError, TypeError, ValueError) as error:
        yield f"version {event.version} of it cannot be read: {error}"
        return
    for field in unknown_fields(event.type, event.version, event.payload):
        yield f"it says {field!r}, which no {event.type} has"


def _misplaced(event: _Stored, before: _Stored | None) -> Iterator[str]:
    """The events of one command stand together, counted up, at one time, by one actor."""
    command, mark, place = event.command_id.partition(log.CONTINUATION)
    if not mark:
        return
    if before is None or before.command_id != _event_before(command, place):
        yield f"it is event {place} of command {command}, and what stands before it is not the event before that"
    elif (event.at, event.actor) != (before.at, before.actor):
        yield f"command {command} has another time or actor in it than in the event before"


def _event_before(command: str, place: str) -> str | None:
    return log.event_command_id(command, int(place) - 1) if place.isdecimal() and int(place) else None
