"""`check`: every invariant computed again, every event read, and the log folded beside the tables (rules 3.1, 3.4, 12).

Each fault becomes a violation with a name, never a traceback: the store is damaged already. Without an index or a trigger no
result is wrong at once, so missing parts of the database are violations, too. `rebuild` makes them again.
"""

import re
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import NamedTuple

import msgspec

from databuild_dagster.model.command_ids import CONTINUATION, bare, is_possible
from databuild_dagster.model.errors import IllegalMove
from databuild_dagster.model.wording import one_line
from databuild_dagster.store import log, schema
from databuild_dagster.store.backends.base import Connection, Database
from databuild_dagster.store.codec import decode, unknown_fields
from databuild_dagster.store.errors import StoreUnusable
from databuild_dagster.store.format import EVENTS, META
from databuild_dagster.store.invariants import Invariant, Violation, violations
from databuild_dagster.store.rebuild import CANNOT_BE, differences
from databuild_dagster.store.store import Store

#: Damaged places of the file that are listed.
MOST_DAMAGED = 20
#: Faulty events that are listed; with more the log as a whole is wrong.
MOST_EVENTS = 20
Question = Callable[[Connection], list[Violation]]


def check(store: Store, *, deep: bool = False, further: Sequence[Invariant] = ()) -> list[Violation]:
    """All violations, in a consistent snapshot; `deep` also has the database check its own file.

    `further` are the invariants of features.
    """
    found: list[Violation] = []
    try:
        with store.reading() as connection:
            store.database.take_time(connection)
            asked = _Asked(store.database, connection)
            found += asked(partial(lacking, store.database))
            gone = {violation.entity for violation in found}
            for question in _questions(store.database, further, gone=gone, deep=deep):
                found += [violation for violation in asked(question) if violation not in found]
    except StoreUnusable as error:
        store.close()
        found += [] if found else [_unreadable("database", error.facts["why"])]
    return found


def _questions(database: Database, further: Sequence[Invariant], *, gone: set[str], deep: bool) -> Iterator[Question]:
    """The questions that the existing tables can answer."""
    if deep:
        yield partial(_damage, database)
    if EVENTS not in gone:
        yield audit
    if gone.isdisjoint(schema.metadata.tables):
        yield partial(violations, further=further)
        yield _differences


class _Asked(NamedTuple):
    """Asks a question; a table that the database cannot read is a violation too."""

    database: Database
    connection: Connection

    def __call__(self, question: Question) -> list[Violation]:
        try:
            with self.database.apart(self.connection):
                return question(self.connection)
        except (*self.database.errors, *CANNOT_BE) as error:
            return [_unreadable(table, why) for table, why in self._torn()] or [_unreadable("database", error)]

    def _torn(self) -> Iterator[tuple[str, Exception]]:
        """The tables of which not every row can be read."""
        for name, table in schema.metadata.tables.items():
            # In the order of the table itself, because an index may hold all columns.
            key = ", ".join(column.name for column in table.primary_key)
            try:
                with self.database.apart(self.connection):
                    for _ in self.connection.execute(f"SELECT * FROM {name} ORDER BY {key}"):
                        pass
            except (*self.database.errors, *CANNOT_BE) as error:
                yield name, error


def _unreadable(entity: str, why: object) -> Violation:
    rebuild = (
        "copy the file away and run `databuild log rebuild`; if that fails too, take the log alone into a new file"
    )
    remedy = "restore the last copy of the database" if entity == EVENTS else rebuild
    return Violation("rule 3.4", entity, f"cannot be read ({one_line(why)}): {remedy}")


def _damage(database: Database, connection: Connection) -> list[Violation]:
    """Faults of the file's structure: pages, the order of rows, an index that does not match its table."""
    found = database.damage(connection, MOST_DAMAGED)
    return [Violation("rule 3.4", "database", f"its file is damaged: {detail}") for detail in found]


def _differences(connection: Connection) -> list[Violation]:
    """I5. A log that does not fold is reported by the event that stops it."""
    try:
        return [Violation("I5", table, detail) for table, detail in differences(connection)]
    except IllegalMove as broken:
        return list(_stopped(connection, broken))


def _stopped(connection: Connection, broken: IllegalMove) -> Iterator[Violation]:
    seq = broken.facts["seq"]
    for (name,) in connection.execute(f"SELECT type FROM {EVENTS} WHERE seq = ?", (seq,)):
        why = f"the log does not fold: {name} at seq {seq} stops it. {broken.message}"
        yield Violation("I5", f"seq {seq}", why)


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
    """Events that cannot be read, have unknown fields, or do not follow the event before (rule 3.1).

    The fold checks the meaning of events; `invariants` checks seqs and times.
    """
    found: list[Violation] = []
    before: _Stored | None = None
    for event in _stored(connection, found):
        wrong = [*_misread(event), *_misplaced(event, before)]
        found += [Violation("rule 3.1", f"seq {event.seq}", f"{event.type}: {fault}") for fault in wrong]
        before = event
        if len(found) >= MOST_EVENTS:
            found.append(Violation("rule 3.1", "log", f"is not checked after seq {event.seq}"))
            break
    return found


def _stored(connection: Connection, found: list[Violation]) -> Iterator[_Stored]:
    """The events up to the first row that the database cannot read, which is added to `found`."""
    seq = 0
    try:
        while rows := log.page_after(connection, seq, log.PAGE):
            yield from map(_Stored._make, rows)
            seq = rows[-1][0]
    except IllegalMove as broken:
        why = f"{broken.facts['why']}: restore the last copy of the database"
        found.append(Violation("rule 3.1", f"seq {broken.facts['seq']}", why))


def _misread(event: _Stored) -> Iterator[str]:
    try:
        decode(event.type, event.version, event.payload)
    except (msgspec.MsgspecError, LookupError, TypeError, ValueError) as error:
        yield f"version {event.version} of it cannot be read: {error}"
        return
    for field in unknown_fields(event.type, event.version, event.payload):
        yield f"it says {field!r}, which no {event.type} has"


def _misplaced(event: _Stored, before: _Stored | None) -> Iterator[str]:
    """The events of a command are consecutive and numbered, and have the same time and actor."""
    command, mark, place = event.command_id.partition(CONTINUATION)
    if not mark or is_possible(event.command_id):
        return
    if before is None or not _is_before(before.command_id, command, place):
        yield f"it is event {place} of command {command}, and the event before it is not the one before that"
    elif (event.at, event.actor) != (before.at, before.actor):
        yield f"command {command} has another time or actor in it than in the event before"


def _is_before(before: str, command: str, place: str) -> bool:
    """Whether an id is that of the event before an event of the command at a place; a first event may have a fingerprint."""
    if place == "1":
        return bare(before) == command and is_possible(before)
    return place.isdecimal() and int(place) > 1 and before == log.event_command_id(command, int(place) - 1)


_CREATE = re.compile(r"\s*CREATE (?:UNIQUE )?(TABLE|INDEX|VIEW|TRIGGER) (?:IF NOT EXISTS )?(\w+)(?:.* ON (\w+))?")
_REBUILD = "run `databuild log rebuild`, which makes it again"
#: By kind, the effect of a missing part and the remedy.
_GONE = {
    "table": f"is gone, and is computed from the log: {_REBUILD}",
    "index": f"is gone, so its queries are slow: {_REBUILD}",
    "view": f"is gone, so tools that read it fail: {_REBUILD}",
    "trigger": f"is gone, so the log is not protected against changes: {_REBUILD}, and check who may write to the database",
}
_LOG_GONE = "is gone, and cannot be computed: restore the last copy of the database"


class _Part(NamedTuple):
    kind: str
    name: str
    #: The table of an index or a trigger.
    table: str | None
    sql: str


def lacking(database: Database, connection: Connection) -> list[Violation]:
    """Parts that are gone or changed."""
    present = database.parts(connection)
    found = []
    for part in _parts(database):
        sql = present.get((part.kind, part.name))
        if part.table is not None and ("table", part.table) not in present:
            continue
        if sql is None:
            found.append(Violation("rule 3.1", part.name, _LOG_GONE if _is_log(part) else _GONE[part.kind]))
        elif sql and part.kind in ("view", "trigger") and _plain(sql) != _plain(part.sql):
            found.append(Violation("rule 3.1", part.name, f"this {part.kind} was changed: {_REBUILD}"))
        elif part.name in schema.metadata.tables and (columns := _lacking_columns(database, connection, part.name)):
            names = ", ".join(columns)
            what_to_do = _LOG_GONE if _is_log(part) else _GONE["table"]
            found.append(Violation("rule 3.1", part.name, f"its column {names} {what_to_do}"))
    return found


def _parts(database: Database) -> tuple[_Part, ...]:
    """The parts that the DDL makes."""
    found = ((_CREATE.match(statement), statement) for statement in database.ddl())
    return tuple(_Part(match[1].lower(), match[2], match[3], statement) for match, statement in found if match)


def _is_log(part: _Part) -> bool:
    return part.name in (EVENTS, META)


def _lacking_columns(database: Database, connection: Connection, table: str) -> list[str]:
    present = database.columns(connection, table)
    return [column.name for column in schema.metadata.tables[table].columns if column.name not in present]


def _plain(sql: str) -> str:
    return " ".join(sql.split())
