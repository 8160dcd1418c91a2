"""`check`: every invariant recomputed, and the log folded again beside the tables (SPEC 3.4, 12).

Each fault becomes a violation with a name, never a traceback: the store is damaged already.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import NamedTuple

from databuild_dagster.model.errors import IllegalMove
from databuild_dagster.store import schema
from databuild_dagster.store.audit import audit
from databuild_dagster.store.backends.base import Connection, Database
from databuild_dagster.store.errors import StoreUnusable
from databuild_dagster.store.invariants import Violation, violations
from databuild_dagster.store.rebuild import differences
from databuild_dagster.store.store import Store
from databuild_dagster.store.structure import lacking

#: Damaged places of the file that are listed.
MOST_DAMAGED = 20

Question = Callable[[Connection], list[Violation]]


def check(store: Store, *, deep: bool = False) -> list[Violation]:
    """All violations, in one consistent snapshot; `deep` also has the database check its own file."""
    found: list[Violation] = []
    try:
        with store.reading() as connection:
            store.database.take_time(connection)
            asked = _Asked(store.database, connection)
            found += asked(partial(lacking, store.database))
            gone = {violation.entity for violation in found}
            for question in _questions(store.database, gone=gone, deep=deep):
                found += [violation for violation in asked(question) if violation not in found]
    except StoreUnusable as error:
        store.close()
        found += [] if found else [_unreadable("database", error.facts["why"])]
    return found


def _questions(database: Database, *, gone: set[str], deep: bool) -> Iterator[Question]:
    """The questions that the existing tables can answer."""
    if deep:
        yield partial(_damage, database)
    if schema.events.name not in gone:
        yield audit
    if gone.isdisjoint(schema.metadata.tables):
        yield violations
        yield _differences


class _Asked(NamedTuple):
    """Asks a question; a table that the database cannot read is a violation too."""

    database: Database
    connection: Connection

    def __call__(self, question: Question) -> list[Violation]:
        try:
            with self.database.apart(self.connection):
                return question(self.connection)
        except self.database.errors as error:
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
            except self.database.errors as error:
                yield name, error


def _unreadable(entity: str, why: object) -> Violation:
    rebuild = (
        "copy the file away and run `databuild log rebuild`; if that fails too, take the log alone into a new file"
    )
    remedy = "restore the last copy of the database" if entity == schema.events.name else rebuild
    return Violation("SPEC 3.4", entity, f"cannot be read ({why}): {remedy}")


def _damage(database: Database, connection: Connection) -> list[Violation]:
    """Faults of the file's structure: pages, the order of rows, an index that does not match its table."""
    found = database.damage(connection, MOST_DAMAGED)
    return [Violation("SPEC 3.4", "database", f"its file is damaged: {detail}") for detail in found]


def _differences(connection: Connection) -> list[Violation]:
    """I5. A log that does not fold is reported by the event that stops it."""
    try:
        return [Violation("I5", table, detail) for table, detail in differences(connection)]
    except IllegalMove as broken:
        return list(_stopped(connection, broken))


def _stopped(connection: Connection, broken: IllegalMove) -> Iterator[Violation]:
    seq = broken.facts["seq"]
    for (name,) in connection.execute(f"SELECT type FROM {schema.events.name} WHERE seq = ?", (seq,)):
        why = f"the log does not fold: {name} at seq {seq} stops it. {broken.message}"
        yield Violation("I5", f"seq {seq}", why)
