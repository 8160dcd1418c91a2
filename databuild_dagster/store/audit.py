"""The log checked event by event, each alone and with the event before it (SPEC 3.1).

The fold checks the meaning of events; `invariants` checks seqs and times.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import msgspec

from databuild_dagster.store import log
from databuild_dagster.store.backends.base import Connection
from databuild_dagster.store.codec import decode, unknown_fields
from databuild_dagster.store.invariants import Violation

#: Faulty events that are listed; with more the log as a whole is wrong.
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
    """Events that cannot be read, have unknown fields, or do not follow the one before."""
    found: list[Violation] = []
    before: _Stored | None = None
    for event in _stored(connection):
        wrong = [*_misread(event), *_misplaced(event, before)]
        found += [Violation("SPEC 3.1", f"seq {event.seq}", f"{event.type}: {fault}") for fault in wrong]
        before = event
        if len(found) >= MOST_EVENTS:
            found.append(Violation("SPEC 3.1", "log", f"is not checked after seq {event.seq}"))
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
    """The events of one command are consecutive and numbered, with one time and one actor."""
    command, mark, place = event.command_id.partition(log.CONTINUATION)
    if not mark:
        return
    if before is None or before.command_id != _event_before(command, place):
        yield f"it is event {place} of command {command}, and the event before it is not the one before that"
    elif (event.at, event.actor) != (before.at, before.actor):
        yield f"command {command} has another time or actor in it than in the event before"


def _event_before(command: str, place: str) -> str | None:
    return log.event_command_id(command, int(place) - 1) if place.isdecimal() and int(place) else None
