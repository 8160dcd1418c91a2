"""`check`: every invariant recomputed, and the log folded anew beside the tables (SPEC 3.4, 12).

Whatever is wrong comes out as a violation with a name, never as a traceback: who asks has a damaged store already.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

from databuild_dagster.model.errors import IllegalMove
from databuild_dagster.store import schema
from databuild_dagster.store.audit import audit
from databuild_dagster.store.database import Connection, Database
from databuild_dagster.store.invariants import Violation, violations
from databuild_dagster.store.rebuild import differences
from databuild_dagster.store.store import Store
from databuild_dagster.store.structure import lacking

#: Damaged places of the file that are told one by one.
MOST_DAMAGED = 20

_UNREADABLE = "copy it away, then run `databuild rebuild`; if the log is hit too, put the last copy in its place"

Question = Callable[[Connection], list[Violation]]


def check(store: Store, *, deep: bool = False) -> list[Violation]:
    """All violations, in one consistent look; `deep` has the database look at its own file too."""
    with store.reading() as connection:
        database = store.database

        def answer(question: Question) -> list[Violation]:
            """What the database itself cannot read is a finding as well."""
            try:
                return question(connection)
            except database.errors as error:
                return [Violation("SPEC 3.4", "database", f"cannot be read ({error}): {_UNREADABLE}")]

        found = answer(partial(lacking, database))
        gone = {violation.entity for violation in found}
        questions: list[Question] = [partial(_damage, database)] if deep else []
        if schema.events.name not in gone:
            questions.append(audit)
        if gone.isdisjoint(schema.metadata.tables):
            questions += [violations, _differences]
        return found + [violation for question in questions for violation in answer(question)]


def _damage(database: Database, connection: Connection) -> list[Violation]:
    """What the file's own structure tells: pages, the order of rows, an index that does not go with its table."""
    found = database.damage(connection, MOST_DAMAGED)
    return [Violation("SPEC 3.4", "database", f"its file is damaged: {told}") for told in found]


def _differences(connection: Connection) -> list[Violation]:
    """I5. A log that does not fold is told by the event that stops it."""
    try:
        return [Violation("I5", table, detail) for table, detail in differences(connection)]
    except IllegalMove as broken:
        return list(_stopped(connection, broken))


def _stopped(connection: Connection, broken: IllegalMove) -> Iterator[Violation]:
    seq = broken.facts["seq"]
    for (name,) in connection.execute(f"SELECT type FROM {schema.events.name} WHERE seq = ?", (seq,)):
        why = f"the log does not fold: {name} at seq {seq} is where it stops. {broken.message}"
        yield Violation("I5", f"seq {seq}", why)
