"""`check`: every invariant recomputed, and the log folded anew beside the tables (SPEC 3.4, 12).

Whatever is wrong comes out as a violation with a name, never as a traceback: who asks has a damaged store already.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator

from databuild_dagster.model.errors import IllegalMove
from databuild_dagster.store import schema
from databuild_dagster.store.audit import audit
from databuild_dagster.store.errors import StoreUnusable
from databuild_dagster.store.invariants import Violation, violations
from databuild_dagster.store.rebuild import differences
from databuild_dagster.store.sqlite import Store
from databuild_dagster.store.structure import lacking

#: Damaged places of the file that are told one by one.
MOST_DAMAGED = 20

Question = Callable[[sqlite3.Connection], list[Violation]]


def check(store: Store, *, deep: bool = False) -> list[Violation]:
    """All violations, in one consistent look; `deep` has the database look at its own file too."""
    found: list[Violation] = []
    try:
        with store.reading() as connection:
            # What a database has beside its rows, and how it lies on the disk, is asked in SQLite's own words.
            on_sqlite = store.url.startswith("sqlite")
            found += _answer(lacking, connection) if on_sqlite else []
            for question in _questions(gone={violation.entity for violation in found}, file=deep and on_sqlite):
                found += [each for each in _answer(question, connection) if each not in found]
    except StoreUnusable as error:
        store.close()
        found += [] if found else [_unreadable("database", error.facts["why"])]
    return found


def _questions(*, gone: set[str], file: bool) -> Iterator[Question]:
    """Those that can be asked of what is left."""
    if file:
        yield _damage
    if schema.events.name not in gone:
        yield audit
    if gone.isdisjoint(schema.metadata.tables):
        yield violations
        yield _differences


def _answer(question: Question, connection: sqlite3.Connection) -> list[Violation]:
    """What SQLite itself cannot read is a finding as well."""
    try:
        return question(connection)
    except sqlite3.Error as error:
        return [_unreadable(table, why) for table, why in _torn(connection)] or [_unreadable("database", error)]


def _torn(connection: sqlite3.Connection) -> Iterator[tuple[str, sqlite3.Error]]:
    """The tables of which not every row can be read."""
    for name, table in schema.metadata.tables.items():
        # In the order of the table itself, for an index may happen to hold all columns.
        key = ", ".join(column.name for column in table.primary_key)
        try:
            for _ in connection.execute(f"SELECT * FROM {name} ORDER BY {key}"):
                pass
        except sqlite3.Error as error:
            yield name, error


def _unreadable(entity: str, why: object) -> Violation:
    if entity == schema.events.name:
        what_to_do = "put the last copy of the database in its place"
    else:
        what_to_do = (
            "copy the file away and run `databuild rebuild`; if that fails too, take the log alone into a new file"
        )
    return Violation("SPEC 3.4", entity, f"cannot be read ({why}): {what_to_do}")


def _damage(connection: sqlite3.Connection) -> list[Violation]:
    """What the file's own structure tells: pages, the order of rows, an index that does not go with its table."""
    rows = connection.execute(f"PRAGMA integrity_check({MOST_DAMAGED})")
    return [Violation("SPEC 3.4", "database", f"its file is damaged: {told}") for (told,) in rows if told != "ok"]


def _differences(connection: sqlite3.Connection) -> list[Violation]:
    """I5. A log that does not fold is told by the event that stops it."""
    try:
        return [Violation("I5", table, detail) for table, detail in differences(connection)]
    except IllegalMove as broken:
        return list(_stopped(connection, broken))


def _stopped(connection: sqlite3.Connection, broken: IllegalMove) -> Iterator[Violation]:
    seq = broken.facts["seq"]
    for (name,) in connection.execute(f"SELECT type FROM {schema.events.name} WHERE seq = ?", (seq,)):
        why = f"the log does not fold: {name} at seq {seq} is where it stops. {broken.message}"
        yield Violation("I5", f"seq {seq}", why)
