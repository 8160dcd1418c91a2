"""The append-only event log: seqs without gaps, times that never go back (rule 3.1); and the witness of its end (decision 0062).

A log that went back, to a replica that lagged or to a restored copy, does not show it by itself. A file outside the database has
the last event of each log that processes of a home have seen, for processes that begin later. A home that was copied has a different
folder, so the file of the original has no effect there.
"""

import os
import re
from collections.abc import Iterator
from contextlib import suppress
from typing import Any, NamedTuple

import msgspec

from databuild_dagster.model.command_ids import CONTINUATION, bare, is_of_another_request
from databuild_dagster.model.errors import CommandIdUsed, IllegalMove
from databuild_dagster.model.events import Event
from databuild_dagster.model.wording import one_line
from databuild_dagster.store.backends.base import Connection, Keys
from databuild_dagster.store.codec import decode, encode, escaped
from databuild_dagster.store.format import META, PREFIX

APPEND = f"INSERT INTO {PREFIX}events (seq, at, type, version, command_id, actor, payload) VALUES (?, ?, ?, ?, ?, ?, ?)"
READ = f"SELECT seq, at, type, version, command_id, actor, payload FROM {PREFIX}events"

#: Rows of a log of any length that are read at once: an event may have ten thousand refs, in 3 MB.
PAGE = 20

HEAD = f"SELECT seq, at FROM {PREFIX}events ORDER BY seq DESC LIMIT 1"
#: The same as the first query of a writing transaction, with the versions of the log and of the tables (rule 3.4), the last
#: event's command, and that of the event that the process saw last (rule 3.13).
HEAD_TO_WRITE = f"""
SELECT seq, at, (SELECT value FROM {META} WHERE key = 'log_version'),
       (SELECT value FROM {META} WHERE key = 'projection_version'),
       command_id, (SELECT command_id FROM {PREFIX}events WHERE seq = ?)
FROM {PREFIX}events ORDER BY seq DESC LIMIT 1"""

#: NUL in JSON, after an even number of backslashes; after an odd number the last backslash escapes the backslash of NUL.
_NUL = "\\u0000"
_NULS = re.compile(r"(?<!\\)((?:\\\\)*)\\u0000")


class Head(NamedTuple):
    """The last event's place and time."""

    seq: int
    at: float


#: The head of an empty log.
BEFORE_ALL = Head(0, 0.0)


def head(connection: Connection) -> Head:
    row = connection.execute(HEAD).fetchone()
    return Head(*row) if row else BEFORE_ALL


def append(connection: Connection, event: Event) -> Event:
    """Append an event and return it as stored.

    Some texts of other programs, such as the output of a failed process, cannot be stored: PostgreSQL has no NUL, UTF-8 no
    half of a surrogate pair.
    """
    try:
        name, version, payload = encode(event.fact)
    except UnicodeEncodeError:
        event = event._replace(fact=escaped(event.fact))
        name, version, payload = encode(event.fact)
    if _NUL in payload:
        payload = _NULS.sub(r"\1\\ufffd", payload)
        event = event._replace(fact=decode(name, version, payload))
    connection.execute(APPEND, (event.seq, event.at, name, version, event.command_id, event.actor, payload))
    return event


def event_command_id(command_id: str, place: int) -> str:
    """Unique for every event of a command: its id, and a number from the second event on."""
    return command_id if place == 0 else f"{bare(command_id)}{CONTINUATION}{place}"


def events_of_command(connection: Connection, command_id: str) -> list[Event]:
    """The events of a command, in order.

    Raises `CommandIdUsed` for an id with a fingerprint, if a different request had the id.
    """
    id = bare(command_id)
    which = "command_id = ? OR (command_id >= ? AND command_id < ?) ORDER BY seq"
    found = _read(connection, which, id, id + CONTINUATION, id + chr(ord(CONTINUATION) + 1))
    if found and is_of_another_request(command_id, found[0].command_id):
        raise CommandIdUsed(command_id=id)
    return found


def events_after(connection: Connection, seq: int, limit: int) -> list[Event]:
    return _read(connection, "seq > ? ORDER BY seq LIMIT ?", seq, limit)


def events_named(connection: Connection, names: Keys, after_seq: int, last_seq: int) -> list[Event]:
    """The events of some types in a range of the log."""
    which = "seq > ? AND seq <= ? AND type IN (SELECT value FROM json_each(?)) ORDER BY seq"
    return _read(connection, which, after_seq, last_seq, names)


def events_at(connection: Connection, seqs: Keys) -> list[Event]:
    return _read(connection, "seq IN (SELECT value FROM json_each(?)) ORDER BY seq", seqs)


def all_events(connection: Connection) -> Iterator[Event]:
    """In small pages, decoded event by event."""
    seq = 0
    while rows := page_after(connection, seq, PAGE):
        for row in rows:
            yield _event(row)
        seq = rows[-1][0]


def page_after(connection: Connection, seq: int, limit: int) -> list[Any]:
    """The next rows of the log.

    Raises `IllegalMove` with the seq of a row that the database cannot read, such as a text that is not UTF-8.
    """
    try:
        return connection.execute(f"{READ} WHERE seq > ? ORDER BY seq LIMIT ?", (seq, limit)).fetchall()
    except Exception as error:
        unreadable = _first_unreadable(connection, seq, limit)
        if unreadable is None:
            raise
        raise IllegalMove(seq=unreadable, on="event", why=f"its row cannot be read: {one_line(error)}") from error


def _first_unreadable(connection: Connection, after_seq: int, limit: int) -> int | None:
    """The seq of the first event whose row the database cannot read; None if it cannot be found."""
    seq = None
    with suppress(Exception):
        for (seq,) in connection.execute(
            f"SELECT seq FROM {PREFIX}events WHERE seq > ? ORDER BY seq LIMIT ?", (after_seq, limit)
        ).fetchall():
            connection.execute(f"{READ} WHERE seq = ?", (seq,)).fetchall()
        seq = None
    return seq


def _read(connection: Connection, which: str, *parameters: Any) -> list[Event]:
    return [_event(row) for row in connection.execute(f"{READ} WHERE {which}", parameters)]


def _event(row: tuple[int, float, str, int, str, str, str]) -> Event:
    seq, at, name, version, command_id, actor, payload = row
    try:
        fact = decode(name, version, payload)
    except (msgspec.MsgspecError, LookupError, TypeError, ValueError) as error:
        why = f"version {version} of it cannot be read: {error}"
        raise IllegalMove(seq=seq, on=name, why=why) from error
    return Event(seq, at, fact, command_id, actor)


#: The file in a home.
WITNESS_NAME = "databuild.seen"
#: Logs that the file has; a take-over begins a new log.
MOST_LOGS = 20


class Mark(NamedTuple):
    """An event of a log: its place, and the id of its command, which no other event has (rule 3.1)."""

    seq: int
    command_id: str


#: Of a process that has seen no event.
NOTHING_SEEN = Mark(0, "")


class _Witness(msgspec.Struct):
    folder: int
    #: By the ids of their stores, the last noted store at the end.
    logs: dict[str, Mark]


class Witness:
    """The file of a home, for a store."""

    def __init__(self, home: str, store_id: str) -> None:
        self._home = home
        self._path = os.path.join(home, WITNESS_NAME)
        self._store_id = store_id

    def last_seen(self) -> Mark:
        return self._read().logs.get(self._store_id, NOTHING_SEEN)

    def note(self, mark: Mark) -> None:
        """Note the last event that a process has seen. A home that cannot be written has no witness."""
        with suppress(OSError):
            logs = self._read().logs
            before = logs.pop(self._store_id, NOTHING_SEEN)
            logs[self._store_id] = max(before, mark, key=lambda seen: seen.seq)
            kept = dict(list(logs.items())[-MOST_LOGS:])
            new = f"{self._path}.{os.getpid()}"
            with open(new, "wb") as file:
                file.write(msgspec.json.encode(_Witness(os.stat(self._home).st_ino, kept)))
            os.replace(new, self._path)

    def _read(self) -> _Witness:
        with suppress(OSError, msgspec.DecodeError, UnicodeDecodeError), open(self._path, "rb") as file:
            found = msgspec.json.decode(file.read(), type=_Witness)
            if found.folder == os.stat(self._home).st_ino:
                return found
        return _Witness(0, {})
