"""`check`: every invariant recomputed, and the log folded anew beside the tables (SPEC 3.4, 12).

Whatever is wrong comes out as a violation with a name, never as a traceback: who asks has a damaged store already.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator

from databuild_dagster.model.errors import IllegalMove
from databuild_dagster.store import schema
from databuild_dagster.store.audit import audit
from databuild_dagster.store.invariants import Violation, violations
from databuild_dagster.store.rebuild import differences
from databuild_dagster.store.sqlite import Store
from databuild_dagster.store.structure import lacking

#: Damaged places of the file that are told one by one.
MOST_DAMAGED = 20

Question = Callable[[sqlite3.Connection], list[Violation]]


def check(store: Store, *, deep: bool = False) -> list[Violation]:
    """All violations, in one consistent look; `deep` has the database look at its own file too."""
    with store.reading() as connection:
        found = _answer(lacking, connection)
        gone = {violation.entity for violation in found}
        questions: list[Question] = [_damage] if deep else []
        if schema.events.name not in gone:
            questions.append(audit)
        if gone.isdisjoint(schema.metadata.tables):
            questions += [violations, _differences]
        return found + [violation for question in questions for violation in _answer(question, connection)]


def _answer(question: Question, connection: sqlite3.Connection) -> list[Violation]:
    """What SQLite itself cannot read is a finding as well."""
    try:
        return question(connection)
    except sqlite3.Error as error:
        why = f"cannot be read ({error}): copy it away, then run `databuild rebuild`; if the log is hit too, put the last copy in its place"
        return [Violation("SPEC 3.4", "database", why)]


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
