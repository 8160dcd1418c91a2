"""The log folded into a store of its own (rule 3.4).

`rebuild` replaces the tables with the result, `migrate` does so for the tables of an older version, `differences` compares
them, and `as_it_was` shows the state after an earlier event.
"""

import fcntl
import os
import shutil
import sqlite3
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from typing import NamedTuple

from sqlalchemy import Table

from databuild_dagster.model.errors import IllegalMove
from databuild_dagster.model.events import Event
from databuild_dagster.model.fold.evolve import fold
from databuild_dagster.store import log, schema
from databuild_dagster.store.backends.base import Connection
from databuild_dagster.store.format import LOG_VERSION, META, PROJECTION_VERSION
from databuild_dagster.store.store import Store
from databuild_dagster.store.unit_of_work import UnitOfWork

#: Exceptions that the fold of a damaged event may raise; errors of the disk are not among them.
CANNOT_BE: tuple[type[Exception], ...] = (
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
_Row = tuple[object, ...]
#: Rows of a difference that are listed.
MOST_DIFFERENCES = 20
#: Slices of a table of which one at a time is in memory.
N_SLICES = 64
#: Moves after which a rebuild writes the rows in memory. A row that changes again before is written once.
MOVES_AT_ONCE = 10_000
#: The same for events that move nothing.
EVENTS_AT_ONCE = 5_000
#: Events of a store as it was that are in memory at once.
EVENTS_PER_PAGE = 1000
SCRATCH_PREFIX = "databuild-fold-"
#: Folders that are made until one is locked. On a file system without locks no process removes the last folder.
MOST_TRIES = 10


def rebuild(store: Store) -> int:
    """Compute every table from the log and put the result in place, under the write lock. Returns the number of events."""
    with scratch_store() as scratch, store.writing() as work:
        store.database.take_time(work.connection)
        return recompute(store, work, scratch)


def recompute(store: Store, work: UnitOfWork, scratch: Store) -> int:
    """Replace the tables by the fold of the log, inside a transaction. Returns the number of events."""
    try:
        n_events = fold_all(_events_of(store, work.connection), scratch, moves_at_once=MOVES_AT_ONCE)
    except IllegalMove:
        # A fault that showed when many events were written is traced to its event.
        with scratch_store() as slowly:
            fold_all(_events_of(store, work.connection), slowly, moves_at_once=0)
        raise
    store.database.exclude_lookers(work.connection)
    # Dropped and not emptied: an older version's tables may have had other columns.
    for view in schema.VIEWS:
        work.connection.execute(f"DROP VIEW IF EXISTS {view}")
    for table in schema.PROJECTIONS:
        work.connection.execute(f"DROP TABLE IF EXISTS {table.name}")
    for statement in store.database.ddl(schema.PROJECTIONS):
        work.connection.execute(statement)
    # The log's triggers that are gone, changed, or new since an older version.
    for statement in schema.GUARDS[store.database.dialect]:
        work.connection.execute(statement)
    for table in schema.PROJECTIONS:
        _copy(scratch.database.connection(), work.connection, table)
    work.connection.executemany(
        f"UPDATE {META} SET value = ? WHERE key = ?",
        [(str(LOG_VERSION), "log_version"), (str(PROJECTION_VERSION), "projection_version")],
    )
    return n_events


class Migration(NamedTuple):
    """The versions before and after, each (of the log, of the tables)."""

    before: tuple[int, int]
    after: tuple[int, int]
    #: Events from which the tables were computed; None when there was nothing to do.
    n_events: int | None


def migrate(store: Store) -> Migration:
    """Bring a database of an older version to this version; the store was opened without a check of its tables' version.

    The log's table never changed its shape, and `codec` raises old events as it reads them. So a migration computes the tables,
    and records in the log that this version may write there, which older versions refuse from then on.
    """
    before, after = store.versions(), store.known_versions
    return Migration(before, after, None if before == after else rebuild(store))


@contextmanager
def as_it_was(store: Store, seq: int) -> Iterator[Store]:
    """A temporary store whose log ends at `seq` (rule 3.2).

    The history has the state of a single entity at a seq; a fold of the log has the exact state of all entities, at its price.
    """
    with scratch_store() as then:
        fold_all(_events_up_to(store, seq), then, moves_at_once=MOVES_AT_ONCE, with_log=True)
        then.places = store.places
        yield then


def _events_up_to(store: Store, seq: int) -> Iterator[Event]:
    """Each page is a read of its own: no writer waits, and appended events do not change."""
    last = 0
    while last < seq:
        with store.reading() as connection:
            events = log.events_after(connection, last, min(EVENTS_PER_PAGE, seq - last))
        if not events:
            return
        yield from events
        last = events[-1].seq


def differences(connection: Connection) -> list[tuple[str, str]]:
    """(table, what differs) between the live tables and the fold of the log, row for row (I5)."""
    found = []
    with scratch_store() as scratch:
        # A fresh view for every event, as if each had been a command: a result must not depend on loaded rows.
        fold_all(log.all_events(connection), scratch, moves_at_once=0)
        folded = scratch.database.connection()
        for table in schema.PROJECTIONS:
            tables, fold_of_log = _only_in_one(connection, folded, table)
            found += [(table.name, f"only in the tables: {row}") for row in tables]
            found += [(table.name, f"only in the log's fold: {row}") for row in fold_of_log]
    return found


def _only_in_one(one: Connection, other: Connection, table: Table) -> tuple[list[_Row], list[_Row]]:
    """The first rows that only one of two databases has.

    A table may not fit into memory. So its rows are summed in slices by their hash, and only slices that differ are read.
    """
    sums = zip(_sums(one, table), _sums(other, table), strict=True)
    only: tuple[list[_Row], list[_Row]] = ([], [])
    for number in [number for number, (here, there) in enumerate(sums) if here != there]:
        here, there = ({row for row in _rows(at, table) if hash(row) % N_SLICES == number} for at in (one, other))
        only[0].extend(here - there)
        only[1].extend(there - here)
        if max(map(len, only)) >= MOST_DIFFERENCES:
            break
    return sorted(only[0], key=repr)[:MOST_DIFFERENCES], sorted(only[1], key=repr)[:MOST_DIFFERENCES]


def _sums(connection: Connection, table: Table) -> list[int]:
    sums = [0] * N_SLICES
    for row in _rows(connection, table):
        # The sum is of the text: -1 and -2 have one hash, and so have an empty text and 0, or a text and its bytes.
        sums[hash(row) % N_SLICES] += hash(repr(row))
    return sums


def fold_all(events: Iterable[Event], scratch: Store, *, moves_at_once: int, with_log: bool = False) -> int:
    """Fold events into an empty store; `with_log` appends them there too. Returns how many."""
    n_events = 0
    with scratch.writing() as work:
        view, event = UnitOfWork(work.connection), None
        for event in events:
            if with_log:
                log.append(work.connection, event)
            with _located(event):
                fold(view, event)
                if view.n_moves >= moves_at_once or n_events % EVENTS_AT_ONCE == 0:
                    view.flush()
                    view = UnitOfWork(work.connection)
            n_events += 1
        if event is not None:
            with _located(event):
                view.flush()
    return n_events


@contextmanager
def _located(event: Event) -> Iterator[None]:
    """An error of the fold becomes an `IllegalMove` with the seq of its event."""
    try:
        yield
    except IllegalMove as broken:
        raise IllegalMove(**{**broken.facts, "seq": event.seq}) from broken
    except CANNOT_BE as error:
        why = f"{type(error).__name__}: {error}"
        on = type(event.fact).__name__
        raise IllegalMove(seq=event.seq, on=on, why=why) from error


def _events_of(store: Store, connection: Connection) -> Iterator[Event]:
    """The log; an error in it names the store itself, and not the store that it is folded into."""
    try:
        yield from log.all_events(connection)
    except Exception as error:
        store.database.raise_trouble(error)


def _copy(source: Connection, target: Connection, table: Table) -> None:
    columns = ", ".join(column.name for column in table.columns)
    marks = ", ".join("?" * len(table.columns))
    target.executemany(
        f"INSERT INTO {table.name} ({columns}) VALUES ({marks})", source.execute(f"SELECT {columns} FROM {table.name}")
    )


def _rows(connection: Connection, table: Table) -> Iterator[_Row]:
    columns = ", ".join(column.name for column in table.columns)
    return iter(connection.execute(f"SELECT {columns} FROM {table.name}"))


@contextmanager
def scratch_store() -> Iterator[Store]:
    """A store in a temporary file, because a big log does not fit into memory. No other process opens it.

    It removes what a killed process left. The lock of its folder says that its process lives: the kernel releases it with the
    process, however that ends.
    """
    _remove_abandoned()
    with _locked_folder() as folder:
        store = Store(f"sqlite:///{os.path.join(folder, 'scratch.db')}", shared=False)
        try:
            store.database.connection().execute("PRAGMA synchronous = OFF")
            yield store
        finally:
            store.close()


@contextmanager
def _locked_folder() -> Iterator[str]:
    for _ in range(MOST_TRIES):
        folder = tempfile.mkdtemp(prefix=SCRATCH_PREFIX)
        # Another process may take the new folder for an abandoned one, and remove it before it is locked here.
        if (lock := _lock_of(folder)) is not None and os.path.isdir(folder):
            break
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        if lock is not None:
            os.close(lock)


def _remove_abandoned() -> None:
    """Remove the folders of processes that are gone."""
    with suppress(OSError):
        names = os.listdir(tempfile.gettempdir())
        for name in names:
            folder = os.path.join(tempfile.gettempdir(), name)
            if name.startswith(SCRATCH_PREFIX) and (lock := _lock_of(folder)) is not None:
                shutil.rmtree(folder, ignore_errors=True)
                os.close(lock)


def _lock_of(folder: str) -> int | None:
    """The descriptor with the lock of a folder; None if a process has it, or the folder is gone or belongs to a different user."""
    try:
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(descriptor)
        return None
    return descriptor
