"""The log folded anew: `rebuild` replaces the tables with the result, `differences` compares them (SPEC 3.4)."""

from __future__ import annotations

import os
import sqlite3
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager

from sqlalchemy import Table

from databuild_dagster.model.evolve import fold
from databuild_dagster.store import log, schema
from databuild_dagster.store.sqlite import Store, ddl
from databuild_dagster.store.unit_of_work import UnitOfWork

#: Rows of a difference that are told one by one.
MOST_DIFFERENCES = 20
#: Moves after which a rebuild writes what it has in memory. Until then, what changes again and again is not written.
MOVES_AT_ONCE = 10_000


def rebuild(store: Store) -> int:
    """Compute every table anew from the log and put the result in place, under the write lock. Returns the number of events."""
    with _scratch() as scratch, store.writing() as work:
        n_events = _fold_all(work.connection, scratch, moves_at_once=MOVES_AT_ONCE)
        for table in schema.PROJECTIONS:
            # Dropped and not emptied: an older version's tables may have had other columns.
            work.connection.execute(f"DROP TABLE IF EXISTS {table.name}")
        for statement in ddl(schema.PROJECTIONS):
            work.connection.execute(statement)
        for table in schema.PROJECTIONS:
            _copy(scratch._connection(), work.connection, table)
        work.connection.execute(
            f"UPDATE {schema.meta.name} SET value = ? WHERE key = 'projection_version'",
            (str(schema.PROJECTION_VERSION),),
        )
        return n_events


def differences(connection: sqlite3.Connection) -> list[tuple[str, str]]:
    """(table, what differs) between the live tables and the fold of the log, row for row (I5)."""
    found = []
    with _scratch() as scratch:
        # A fresh view for every event, as if each had been a command: nothing may depend on what was loaded before.
        _fold_all(connection, scratch, moves_at_once=0)
        for table in schema.PROJECTIONS:
            live, folded = _rows(connection, table), _rows(scratch._connection(), table)
            found += [
                (table.name, f"only in the tables: {row}") for row in sorted(live - folded, key=repr)[:MOST_DIFFERENCES]
            ]
            found += [
                (table.name, f"only in the log's fold: {row}")
                for row in sorted(folded - live, key=repr)[:MOST_DIFFERENCES]
            ]
    return found


@contextmanager
def _scratch() -> Iterator[Store]:
    """A store in a file of its own, since a big log does not fit into memory."""
    with tempfile.TemporaryDirectory(prefix="databuild-rebuild-") as folder:
        path = os.path.join(folder, "scratch.db")
        store = Store(f"sqlite:///{path}")
        try:
            store._connection().execute("PRAGMA synchronous = OFF")
            yield store
        finally:
            store.close()


def _fold_all(source: sqlite3.Connection, scratch: Store, *, moves_at_once: int) -> int:
    n_events = 0
    with scratch.writing() as work:
        view = UnitOfWork(work.connection)
        for event in log.all_events(source):
            fold(view, event)
            n_events += 1
            if view.n_moves >= moves_at_once:
                view.flush()
                view = UnitOfWork(work.connection)
        view.flush()
    return n_events


def _copy(source: sqlite3.Connection, target: sqlite3.Connection, table: Table) -> None:
    columns = ", ".join(column.name for column in table.columns)
    marks = ", ".join("?" * len(table.columns))
    target.executemany(
        f"INSERT INTO {table.name} ({columns}) VALUES ({marks})", source.execute(f"SELECT {columns} FROM {table.name}")
    )


def _rows(connection: sqlite3.Connection, table: Table) -> set[tuple[object, ...]]:
    columns = ", ".join(column.name for column in table.columns)
    return set(connection.execute(f"SELECT {columns} FROM {table.name}"))
