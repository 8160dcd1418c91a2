"""One event log with its projections: opening and refusing, transactions, consistent looks."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from databuild_dagster.store import log, schema
from databuild_dagster.store.backends.base import Connection
from databuild_dagster.store.backends.open import database_of
from databuild_dagster.store.errors import ForeignDatabase, NewerStore, OlderProjection
from databuild_dagster.store.unit_of_work import UnitOfWork


class Store:
    """One event log with its projections. Thread-safe; a transaction belongs to one thread.

    One that is not `shared` is opened by nobody else.
    """

    def __init__(self, url: str, *, check_projections: bool = True, shared: bool = True) -> None:
        self.url = url
        self.database = database_of(url)
        if shared:
            self.database.check_place()
        #: Of the file, for a database that is one.
        self.path = self.database.path
        try:
            self._prepare(check_projections)
        except BaseException as error:
            self.database.raise_trouble(error)

    def _prepare(self, check_projections: bool) -> None:
        connection = self._connection()
        if self._versions(connection) is None:
            if others := self.database.others(connection):
                raise ForeignDatabase(
                    url=self.database.place, why=f"it holds the tables of something else ({others[0]})"
                )
            self._create(connection)
        log_version, tables_version = found = self.versions()
        if log_version > schema.LOG_VERSION or tables_version > schema.PROJECTION_VERSION:
            raise NewerStore(url=self.database.place, found=_told(found), known=_told(self.known_versions))
        if check_projections and found != self.known_versions:
            raise OlderProjection(url=self.database.place, found=_told(found), known=_told(self.known_versions))

    known_versions = (schema.LOG_VERSION, schema.PROJECTION_VERSION)

    def versions(self) -> tuple[int, int]:
        """Of the log, and of the tables that are computed from it."""
        found = self._versions(self._connection())
        assert found is not None, "it has been made"
        return found

    def _versions(self, connection: Connection) -> tuple[int, int] | None:
        if not self.database.has_table(connection, schema.meta.name):
            return None
        found = dict(connection.execute(f"SELECT key, value FROM {schema.meta.name}").fetchall())
        try:
            return int(found["log_version"]), int(found["projection_version"])
        except (KeyError, ValueError):
            why = f"its table {schema.meta.name} does not tell its version"
            raise ForeignDatabase(url=self.database.place, why=why) from None

    def _create(self, connection: Connection) -> None:
        """All tables or none; of two who come at once one finds them."""
        self.database.begin(connection)
        try:
            if self._versions(connection) is None:
                for statement in self.database.ddl():
                    connection.execute(statement)
                versions = {"log_version": schema.LOG_VERSION, "projection_version": schema.PROJECTION_VERSION}
                connection.executemany(
                    f"INSERT INTO {schema.meta.name} (key, value) VALUES (?, ?)",
                    [(key, str(value)) for key, value in versions.items()],
                )
            self.database.commit(connection)
        finally:
            self.database.end(connection)

    def _connection(self) -> Connection:
        return self.database.connection()

    @contextmanager
    def writing(self) -> Iterator[UnitOfWork]:
        """One transaction: written when the block ends, undone when it raises, whatever it raises."""
        database = self.database
        try:
            connection = self._connection()
            database.begin(connection, log.HEAD)
        except BaseException as error:
            database.raise_trouble(error)
        try:
            work = UnitOfWork(connection)
            yield work
            work.flush()
            database.commit(connection)
        except BaseException as error:
            database.raise_trouble(error)
        finally:
            try:
                database.end(connection)
            except BaseException:
                # Interrupted: all others would wait for whatever this thread does next.
                database.end(connection)
                raise

    @contextmanager
    def reading(self) -> Iterator[Connection]:
        """One consistent look at the state, that no writer waits for. Inside of a transaction of this thread it sees that."""
        try:
            with self.database.looking() as connection:
                yield connection
        except BaseException as error:
            self.database.raise_trouble(error)

    def ask(self, sql: str, parameters: Sequence[Any] | Mapping[str, Any] = ()) -> list[Any]:
        """The answer to one question, by the state as it is now."""
        try:
            return self.database.ask(sql, parameters)
        except BaseException as error:
            self.database.raise_trouble(error)

    def close(self) -> None:
        """Close this thread's connections."""
        self.database.close()


def _told(versions: tuple[int, int]) -> str:
    return f"log {versions[0]}, tables {versions[1]}"


def open_store(url: str) -> Store:
    """The store behind a database URL. Raises `StoreUnusable`, `NewerStore`, `OlderProjection`, `UnsupportedDatabase`."""
    return Store(url)
