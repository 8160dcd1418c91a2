"""The log folded anew: `rebuild` replaces the tables with the result, `differences` compares them (SPEC 3.4)."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

from sqlalchemy import Table

from databuild_dagster.model.errors import IllegalMove
from databuild_dagster.model.events import Event
from databuild_dagster.model.fold.evolve import fold
from databuild_dagster.store import log, schema
from databuild_dagster.store.backends.base import Connection
from databuild_dagster.store.scratch import scratch_store
from databuild_dagster.store.store import Store
from databuild_dagster.store.structure import guard_log
from databuild_dagster.store.unit_of_work import UnitOfWork

#: What folding an event that nobody of ours wrote may raise; the disk's own troubles are not among it.
_CANNOT_BE = (
    LookupError,
    ValueError,
    TypeError,
    AttributeError,
    ArithmeticError,
    AssertionError,
    sqlite3.IntegrityError,
    sqlite3.DataError,
    sqlite3.ProgrammingError,
)
#: Rows of a difference that are told one by one.
MOST_DIFFERENCES = 20
#: Moves after which a rebuild writes what it has in memory. Until then, what changes again and again is not written.
MOVES_AT_ONCE = 10_000
#: The same for events that move nothing.
EVENTS_AT_ONCE = 5_000


def rebuild(store: Store) -> int:
    """Compute every table anew from the log and put the result in place, under the write lock. Returns the number of events."""
    with scratch_store() as scratch, store.writing() as work:
        store.database.take_time(work.connection)
        try:
            n_events = fold_all(log.all_events(work.connection), scratch, moves_at_once=MOVES_AT_ONCE)
        except IllegalMove:
            # What only came out as many were written is told of the event that it came from.
            with scratch_store() as slowly:
                fold_all(log.all_events(work.connection), slowly, moves_at_once=0)
            raise
        store.database.exclude_lookers(work.connection)
        # Dropped and not emptied: an older version's tables may have had other columns.
        for view in schema.VIEWS:
            work.connection.execute(f"DROP VIEW IF EXISTS {view}")
        for table in schema.PROJECTIONS:
            work.connection.execute(f"DROP TABLE IF EXISTS {table.name}")
        for statement in store.database.ddl(schema.PROJECTIONS):
            work.connection.execute(statement)
        guard_log(store.database, work.connection)
        for table in schema.PROJECTIONS:
            _copy(scratch.database.connection(), work.connection, table)
        work.connection.executemany(
            f"UPDATE {schema.meta.name} SET value = ? WHERE key = ?",
            [(str(schema.LOG_VERSION), "log_version"), (str(schema.PROJECTION_VERSION), "projection_version")],
        )
        return n_events


def differences(connection: Connection) -> list[tuple[str, str]]:
    """(table, what differs) between the live tables and the fold of the log, row for row (I5)."""
    found = []
    with scratch_store() as scratch:
        # A fresh view for every event, as if each had been a command: nothing may depend on what was loaded before.
        fold_all(log.all_events(connection), scratch, moves_at_once=0)
        for table in schema.PROJECTIONS:
            live, folded = _rows(connection, table), _rows(scratch.database.connection(), table)
            found += [
                (table.name, f"only in the tables: {row}") for row in sorted(live - folded, key=repr)[:MOST_DIFFERENCES]
            ]
            found += [
                (table.name, f"only in the log's fold: {row}")
                for row in sorted(folded - live, key=repr)[:MOST_DIFFERENCES]
            ]
    return found


def fold_all(events: Iterable[Event], scratch: Store, *, moves_at_once: int, with_log: bool = False) -> int:
    """Fold events into an empty store, and copy them there too if it is to be asked about them. Returns how many."""
    n_events = 0
    with scratch.writing() as work:
        view, event = UnitOfWork(work.connection), None
        for event in events:
            if with_log:
                log.append(work.connection, event)
            with _told(event):
                fold(view, event)
                if view.n_moves >= moves_at_once or n_events % EVENTS_AT_ONCE == 0:
                    view.flush()
                    view = UnitOfWork(work.connection)
            n_events += 1
        if event is not None:
            with _told(event):
                view.flush()
    return n_events


@contextmanager
def _told(event: Event) -> Iterator[None]:
    """What a damaged event makes of the fold is told as what cannot be, and where, whatever it stumbled over."""
    try:
        yield
    except IllegalMove as broken:
        raise IllegalMove(**{**broken.facts, "seq": event.seq}) from broken
    except _CANNOT_BE as error:
        why = f"{type(error).__name__}: {error}"
        on = type(event.fact).__name__
        raise IllegalMove(seq=event.seq, entity="log", state="-", on=on, why=why) from error


def _copy(source: Connection, target: Connection, table: Table) -> None:
    columns = ", ".join(column.name for column in table.columns)
    marks = ", ".join("?" * len(table.columns))
    target.executemany(
        f"INSERT INTO {table.name} ({columns}) VALUES ({marks})", source.execute(f"SELECT {columns} FROM {table.name}")
    )


def _rows(connection: Connection, table: Table) -> set[tuple[object, ...]]:
    columns = ", ".join(column.name for column in table.columns)
    return set(connection.execute(f"SELECT {columns} FROM {table.name}"))
