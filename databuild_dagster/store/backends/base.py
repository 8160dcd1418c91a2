"""The protocol of a database: connections, one writer at a time, consistent snapshots, DDL.

The statements above this floor are written once, in SQLite's spelling with `?` and `:name` for parameters; PostgreSQL
has them translated (`postgres_sql`).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Any, NoReturn, Protocol

from databuild_dagster.store.errors import NotOneFile

if TYPE_CHECKING:
    import sqlalchemy as sa


class Keys(list[Any]):
    """Many keys as one parameter, of `IN (SELECT value FROM json_each(?))`."""


#: A query with its parameters.
Question = tuple[str, Sequence[Any]]


class Cursor(Protocol):
    """The answer of a statement."""

    def fetchone(self) -> Any: ...
    def fetchall(self) -> list[Any]: ...
    def __iter__(self) -> Iterator[Any]: ...


class Connection(Protocol):
    """A connection, to which a transaction belongs."""

    @property
    def in_transaction(self) -> bool: ...
    def execute(self, sql: str, parameters: Sequence[Any] | Mapping[str, Any] = ..., /) -> Cursor: ...
    def executemany(self, sql: str, parameters: Iterable[Sequence[Any]], /) -> object: ...


class Database(ABC):
    """A place for an event log and its projections."""

    #: SQLAlchemy's name of it.
    dialect: str
    #: The exceptions of its driver.
    errors: tuple[type[Exception], ...]
    #: The url as given.
    url: str
    #: The same without a password, for messages.
    place: str
    #: The path of the file, for a database in a file.
    path: str | None = None
    #: Whether it is in the memory of this process, so that no other process can open it.
    is_private = False
    #: Connections to a server that are kept at rest.
    max_at_rest = 2

    def check_place(self) -> None:
        """Raises `NetworkFileSystem` where processes cannot share it."""
        return

    def make_room(self) -> None:
        """Give back to a full disk what is kept for the commands that free space (rule 10.8). No effect on a server."""
        return

    @abstractmethod
    def connection(self) -> Connection:
        """This thread's own in a transaction; else any that is free."""

    @abstractmethod
    def whereabouts(self, connection: Connection) -> str | None:
        """The place of the database, which a copy does not share; None where no other process can open it."""

    @abstractmethod
    def has_table(self, connection: Connection, name: str) -> bool: ...

    @abstractmethod
    def begin(self, connection: Connection, *soon: Question) -> None:
        """Wait for the other writers, and begin a transaction; `soon` are its first queries."""

    @abstractmethod
    def commit(self, connection: Connection) -> None: ...

    @abstractmethod
    def end(self, connection: Connection) -> None:
        """Roll back uncommitted changes in any state, and let the next writer in.

        A connection that cannot roll back is closed. A second call has no effect.
        """

    @abstractmethod
    def looking(self) -> AbstractContextManager[Connection]:
        """A consistent snapshot that never blocks writers; inside a transaction of this thread it sees its changes."""

    @abstractmethod
    def ask(self, sql: str, parameters: Sequence[Any] | Mapping[str, Any]) -> list[Any]:
        """The answer to a query. A statement sees a consistent state, so it needs no transaction."""

    @abstractmethod
    def aside(self) -> AbstractContextManager[Connection]:
        """A connection that never waits for the log: each statement is a transaction."""

    def ddl(self, tables: Sequence[sa.Table] | None = None) -> list[str]:
        """The statements that make tables, as SQLAlchemy writes them; by default all of an empty database."""
        # SQLAlchemy takes 0.3 s to import, and most processes make no table.
        import sqlalchemy as sa

        from databuild_dagster.store.schema import metadata

        statements: list[str] = []

        def keep(statement: sa.Executable, *_: object, **__: object) -> None:
            statements.append(str(statement.compile(dialect=engine.dialect)))  # type: ignore[attr-defined]

        engine = sa.create_mock_engine(f"{self.dialect}://", keep)
        metadata.create_all(engine, tables, checkfirst=False)
        return statements

    @abstractmethod
    def raise_trouble(self, error: BaseException) -> NoReturn:
        """Raise an error of the database itself as `StoreUnusable`, any other as it is."""

    def exclude_lookers(self, connection: Connection) -> None:
        """Block snapshots to the end of the transaction, which swaps tables. No effect where snapshots are consistent anyway."""
        return

    def take_time(self, connection: Connection) -> None:
        """Allow long pauses between the statements of this transaction."""
        return

    def apart(self, connection: Connection) -> AbstractContextManager[None]:
        """A failing statement in the block does not end the transaction."""
        return nullcontext()

    @abstractmethod
    def parts(self, connection: Connection) -> dict[tuple[str, str], str]:
        """(kind, name) of each part to the statement that made it, empty where the database keeps none."""

    def others(self, connection: Connection) -> list[str]:
        """Tables of other programs, in a database that serves a single program."""
        return []

    @abstractmethod
    def columns(self, connection: Connection, table: str) -> set[str]: ...

    @abstractmethod
    def damage(self, connection: Connection, most: int) -> list[str]:
        """Faults that the database finds in its own pages; none where it has no such check."""

    @abstractmethod
    def alone(self, name: str) -> AbstractContextManager[bool]:
        """True if no other thread or process is in a block of this name."""

    def backup(self, path: str) -> int:
        """Copy the database into a new file while it is in use; returns the number of events in the copy.

        Raises `NotOneFile`, `BackupRefused`.
        """
        raise NotOneFile(url=self.place)

    def sync(self) -> None:
        """Make committed transactions survive a loss of power from here on. No effect on a server, whose setting it is."""
        return

    @abstractmethod
    def close(self) -> None: ...
