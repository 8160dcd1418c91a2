"""The build state in one SQLite file: connections, transactions, opening and refusing.

WAL, so that readers never wait; one writer at a time behind a fair kernel lock; one connection per thread, new after
fork. Everything that the disk can do wrong becomes `StoreUnusable`.
"""

from __future__ import annotations

import os
import sqlite3
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NoReturn

import sqlalchemy as sa
from sqlalchemy.dialects import sqlite as sqlite_dialect

from databuild_dagster.store import schema
from databuild_dagster.store.errors import NewerStore, OlderProjection, StoreUnusable, UnsupportedDatabase
from databuild_dagster.store.unit_of_work import UnitOfWork
from databuild_dagster.store.write_lock import WriteLock

#: How long a statement waits for a writer that does not use our lock, a backup for instance.
BUSY_TIMEOUT_SECONDS = 30.0

_PRAGMAS = (
    "PRAGMA journal_mode = WAL",
    "PRAGMA wal_autocheckpoint = 4000",
    "PRAGMA cache_size = -16000",
    "PRAGMA foreign_keys = OFF",
)


class Store:
    """One event log with its projections. Thread-safe; a transaction belongs to one thread."""

    def __init__(self, url: str, *, check_projections: bool = True) -> None:
        self.url = url
        self.path = _path_of(url)
        self._local = threading.local()
        self._shared: sqlite3.Connection | None = None
        self._lock = WriteLock(None if self.path is None else f"{self.path}.lock")
        with self._trouble_told():
            if self.path is not None:
                Path(self.path).parent.mkdir(parents=True, exist_ok=True)
            self._prepare(check_projections)

    def _prepare(self, check_projections: bool) -> None:
        connection = self._connection()
        found = _meta(connection)
        if not found:
            with self._locked():
                if not _meta(connection):
                    _create(connection)
            found = _meta(connection)
        if int(found["log_version"]) > schema.LOG_VERSION:
            raise NewerStore(url=self.url, found=found["log_version"], known=schema.LOG_VERSION)
        if check_projections and int(found["projection_version"]) != schema.PROJECTION_VERSION:
            raise OlderProjection(url=self.url, found=found["projection_version"], known=schema.PROJECTION_VERSION)

    def _connection(self) -> sqlite3.Connection:
        if self.path is None:
            if self._shared is None:
                self._shared = _connect(":memory:")
            return self._shared
        if getattr(self._local, "pid", None) != os.getpid():
            self._local.connection = _connect(self.path)
            self._local.pid = os.getpid()
        connection: sqlite3.Connection = self._local.connection
        return connection

    @contextmanager
    def _locked(self) -> Iterator[None]:
        self._lock.acquire()
        try:
            yield
        finally:
            self._lock.release()

    @contextmanager
    def writing(self) -> Iterator[UnitOfWork]:
        """One transaction: written when the block ends, undone when it raises, whatever it raises."""
        try:
            connection = self._connection()
            self._lock.acquire()
        except (sqlite3.Error, OSError) as error:
            self._raise_trouble(error)
        try:
            connection.execute("BEGIN IMMEDIATE")
            work = UnitOfWork(connection)
            yield work
            work.flush()
            connection.execute("COMMIT")
        except BaseException as error:
            self._undo(connection)
            self._raise_trouble(error)
        finally:
            self._lock.release()

    def _undo(self, connection: sqlite3.Connection) -> None:
        """A connection that cannot even roll back would show this thread what never happened; so it is given up."""
        try:
            if connection.in_transaction:
                connection.execute("ROLLBACK")
        except sqlite3.Error:
            self.close()

    @contextmanager
    def reading(self) -> Iterator[sqlite3.Connection]:
        """One consistent look at the state, that no writer waits for. Inside of a transaction of this thread it sees that."""
        with self._trouble_told():
            connection = self._connection()
            if self.path is None:
                with self._locked():
                    yield connection
                return
            if connection.in_transaction:
                yield connection
                return
            connection.execute("BEGIN")
            try:
                yield connection
            finally:
                connection.execute("COMMIT")

    def ask(self, sql: str, parameters: Sequence[object]) -> list[tuple[Any, ...]]:
        """The answer to one question. One statement sees one state by itself, so it needs no transaction around it."""
        with self._trouble_told():
            if self.path is None:
                with self._locked():
                    return self._connection().execute(sql, parameters).fetchall()
            return self._connection().execute(sql, parameters).fetchall()

    @contextmanager
    def _trouble_told(self) -> Iterator[None]:
        try:
            yield
        except (sqlite3.Error, OSError) as error:
            self._raise_trouble(error)

    def _raise_trouble(self, error: BaseException) -> NoReturn:
        """What the disk or the file did wrong, as one sentence; anything else as it is."""
        if isinstance(error, sqlite3.DatabaseError) and not isinstance(error, sqlite3.IntegrityError):
            raise StoreUnusable(url=self.url, why=str(error)) from error
        folder = os.path.dirname(self.path or "")
        place = str(error.filename) if isinstance(error, OSError) else ""
        # In the folder, or one above it that could not be made.
        if isinstance(error, OSError) and place and folder and (place.startswith(folder) or folder.startswith(place)):
            raise StoreUnusable(url=self.url, why=f"{error.strerror} ({error.filename})") from error
        raise error

    def close(self) -> None:
        """Close this thread's connection."""
        if self._shared is not None:
            self._shared.close()
            self._shared = None
        elif getattr(self._local, "pid", None) == os.getpid():
            self._local.connection.close()
            self._local.pid = None


def open_store(url: str) -> Store:
    """The store behind a database URL. Raises `StoreUnusable`, `NewerStore`, `OlderProjection`, `UnsupportedDatabase`."""
    return Store(url)


def _path_of(url: str) -> str | None:
    try:
        parsed = sa.make_url(url)
    except sa.exc.ArgumentError:
        raise UnsupportedDatabase(url=url) from None
    if parsed.get_backend_name() != "sqlite":
        raise UnsupportedDatabase(url=url)
    if not parsed.database or parsed.database == ":memory:":
        return None
    return os.path.abspath(parsed.database)


def _connect(path: str) -> sqlite3.Connection:
    # Autocommit, so that BEGIN and COMMIT are ours; a big statement cache, because the hot statements are few and long.
    connection = sqlite3.connect(
        path, timeout=BUSY_TIMEOUT_SECONDS, isolation_level=None, check_same_thread=False, cached_statements=512
    )
    for pragma in _PRAGMAS:
        connection.execute(pragma)
    durability = "FULL" if os.environ.get("DATABUILD_SQLITE_SYNCHRONOUS", "").upper() == "FULL" else "NORMAL"
    connection.execute(f"PRAGMA synchronous = {durability}")
    return connection


def _meta(connection: sqlite3.Connection) -> dict[str, str]:
    exists = connection.execute("SELECT 1 FROM sqlite_master WHERE name = ?", (schema.meta.name,)).fetchone()
    return dict(connection.execute(f"SELECT key, value FROM {schema.meta.name}")) if exists else {}


def _create(connection: sqlite3.Connection) -> None:
    """All tables or none: SQLAlchemy writes the DDL, one transaction of ours runs it."""
    connection.execute("BEGIN IMMEDIATE")
    try:
        for statement in ddl():
            connection.execute(statement)
        versions = {"log_version": schema.LOG_VERSION, "projection_version": schema.PROJECTION_VERSION}
        connection.executemany(
            f"INSERT INTO {schema.meta.name} (key, value) VALUES (?, ?)",
            [(key, str(value)) for key, value in versions.items()],
        )
        connection.execute("COMMIT")
    except BaseException:
        connection.execute("ROLLBACK")
        raise


def ddl(tables: Sequence[sa.Table] | None = None) -> list[str]:
    """The statements that make tables, all of an empty database by default, in SQLite's dialect."""
    statements: list[str] = []
    dialect = sqlite_dialect.dialect()

    def keep(statement: sa.Executable, *_: object, **__: object) -> None:
        statements.append(str(statement.compile(dialect=dialect)))  # type: ignore[attr-defined]

    engine = sa.create_mock_engine("sqlite://", keep)
    schema.metadata.create_all(engine, tables, checkfirst=False)
    return statements
