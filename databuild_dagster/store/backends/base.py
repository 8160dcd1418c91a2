"""What the store asks of a database: connections, one writer at a time, consistent looks, DDL. SQLite and PostgreSQL answer.

The statements above this floor are written once, in SQLite's spelling with `?` and `:name` for parameters; PostgreSQL
has them translated (`postgres_sql`).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any, NoReturn, Protocol

import sqlalchemy as sa

from databuild_dagster.store.errors import NotOneFile


class Keys(list[Any]):
    """Many keys as one parameter, of `IN (SELECT value FROM json_each(?))`."""


class Cursor(Protocol):
    """What a statement answered."""

    def fetchone(self) -> Any: ...
    def fetchall(self) -> list[Any]: ...
    def __iter__(self) -> Iterator[Any]: ...


class Connection(Protocol):
    """One connection; a transaction belongs to it."""

    @property
    def in_transaction(self) -> bool: ...
    def execute(self, sql: str, parameters: Sequence[Any] | Mapping[str, Any] = ..., /) -> Cursor: ...
    def executemany(self, sql: str, parameters: Iterable[Sequence[Any]], /) -> object: ...


class Database(ABC):
    """A place for one event log with its projections."""

    #: SQLAlchemy's name of it.
    dialect: str
    #: What its driver raises.
    errors: tuple[type[Exception], ...]
    #: As it was given.
    url: str
    #: The same without a password in it, for people.
    place: str
    #: Of the file, for a database that is one.
    path: str | None = None

    def check_place(self) -> None:
        """Raises `NetworkFileSystem` where processes cannot share it."""
        return

    @abstractmethod
    def connection(self) -> Connection:
        """This thread's own, while it is in a transaction; else any that is free."""

    @abstractmethod
    def has_table(self, connection: Connection, name: str) -> bool: ...

    @abstractmethod
    def begin(self, connection: Connection, *soon: str) -> None:
        """Wait until nobody else writes, and begin a transaction; `soon` are the statements that it asks first."""

    @abstractmethod
    def commit(self, connection: Connection) -> None: ...

    @abstractmethod
    def end(self, connection: Connection) -> None:
        """Undo what was not committed, in whatever state it is; then it is the next writer's turn.

        A connection that cannot even undo is given up. Called twice it does no more.
        """

    @abstractmethod
    def looking(self) -> AbstractContextManager[Connection]:
        """One consistent look, that no writer waits for. Inside of a transaction of this thread it sees that."""

    @abstractmethod
    def ask(self, sql: str, parameters: Sequence[Any] | Mapping[str, Any]) -> list[Any]:
        """The answer to one question. One statement sees one state by itself, so it needs no transaction around it."""

    @abstractmethod
    def aside(self) -> AbstractContextManager[Connection]:
        """For what never waits for the log: its statements are transactions of their own."""

    @abstractmethod
    def ddl(self, tables: Sequence[sa.Table] | None = None) -> list[str]:
        """The statements that make tables, all of an empty database by default."""

    @abstractmethod
    def raise_trouble(self, error: BaseException) -> NoReturn:
        """What the database itself did wrong, as `StoreUnusable`; anything else as it is."""

    def exclude_lookers(self, connection: Connection) -> None:
        """From here to the end of the transaction nobody looks: tables are swapped. Nothing where looks are of one moment."""
        return

    def take_time(self, connection: Connection) -> None:
        """This transaction may think for long between two statements."""
        return

    def apart(self, connection: Connection) -> AbstractContextManager[None]:
        """A statement in the block that fails leaves the transaction as it is."""
        return nullcontext()

    @abstractmethod
    def parts(self, connection: Connection) -> dict[tuple[str, str], str]:
        """What it is made of, its kind and its name, to the statement that made it; an empty one where none is kept."""

    def others(self, connection: Connection) -> list[str]:
        """Tables of somebody who does not share his database."""
        return []

    @abstractmethod
    def columns(self, connection: Connection, table: str) -> set[str]: ...

    @abstractmethod
    def damage(self, connection: Connection, most: int) -> list[str]:
        """What the database finds wrong with its own pages; nothing where it has no such question."""

    @abstractmethod
    def alone(self, name: str) -> AbstractContextManager[bool]:
        """Whether nobody else, in any process, is within a block of this name now."""

    def backup(self, path: str) -> int:
        """Copy the database into a new file while it is in use; returns the number of events in the copy.

        Raises `NotOneFile`, `BackupRefused`.
        """
        raise NotOneFile(url=self.place)

    @abstractmethod
    def close(self) -> None: ...


def statements_of(tables: Sequence[sa.Table] | None, metadata: sa.MetaData, dialect: sa.Dialect) -> list[str]:
    """SQLAlchemy writes the DDL of a dialect; whoever asks runs it."""
    statements: list[str] = []

    def keep(statement: sa.Executable, *_: object, **__: object) -> None:
        statements.append(str(statement.compile(dialect=dialect)))  # type: ignore[attr-defined]

    metadata.create_all(sa.create_mock_engine(f"{dialect.name}://", keep), tables, checkfirst=False)
    return statements
