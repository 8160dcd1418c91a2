"""The databases that the bench knows: where a store is filled, how it is copied, and the floor that it is measured against.

The needs of each database are here, and psycopg is asked for only by those who ask for PostgreSQL.
"""

from __future__ import annotations

import shutil
import sqlite3
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import sqlalchemy as sa

from bench.engine import clock

#: Both texts of a raw row.
TEXT_A, TEXT_B = "x" * 100, "y" * 100


class Raw(NamedTuple):
    """The floor in a database's words: one narrow table, rows in the order of its key."""

    create: str
    begin: str
    insert: str
    commit: str


RAW = {
    "sqlite": Raw(
        "CREATE TABLE IF NOT EXISTS rows (id INTEGER PRIMARY KEY, a TEXT, b TEXT)",
        "BEGIN IMMEDIATE",
        "INSERT INTO rows (id, a, b) VALUES (?, ?, ?)",
        "COMMIT",
    ),
    "postgres": Raw(
        "CREATE TABLE IF NOT EXISTS rows (id BIGINT PRIMARY KEY, a TEXT, b TEXT)",
        "BEGIN",
        "INSERT INTO rows (id, a, b) VALUES (%s, %s, %s)",
        "COMMIT",
    ),
}


class Floor:
    """Raw transactions, with the settings that a store has."""

    def __init__(self, connection: Any, raw: Raw) -> None:
        self._connection = connection
        self._cursor = connection.cursor()
        self._raw = raw
        self._next = 0
        connection.execute(raw.create)

    def seconds(self, n_rows: int = 1) -> float:
        """Of one transaction that inserts so many rows."""
        rows = [(number, TEXT_A, TEXT_B) for number in range(self._next, self._next + n_rows)]
        self._next += n_rows
        began = clock.seconds()
        self._connection.execute(self._raw.begin)
        if n_rows == 1:
            self._connection.execute(self._raw.insert, rows[0])
        else:
            self._cursor.executemany(self._raw.insert, rows)
        self._connection.execute(self._raw.commit)
        return clock.seconds() - began


class Database(ABC):
    """A kind of database, a place where filled stores are kept, and a place for what is thrown away."""

    name: str

    def __init__(self, keep: Path, scratch: Path) -> None:
        self.keep = keep
        self.scratch = scratch

    @abstractmethod
    def has(self, store: str) -> bool:
        """Whether a store of that name was filled to its end."""

    @abstractmethod
    def url(self, store: str) -> str:
        """Of a store that is being filled or measured, empty or not."""

    @abstractmethod
    def kept(self, store: str) -> None:
        """It is filled now, and closed."""

    @abstractmethod
    def copied(self, store: str, name: str) -> str:
        """The URL of a copy of a filled store."""

    @abstractmethod
    def drop(self, name: str) -> None:
        """Throw a copy away."""

    @contextmanager
    def copy(self, store: str, name: str = "copy") -> Iterator[str]:
        """The URL of a copy of a filled store, for as long as it is used."""
        yield self.copied(store, name)
        self.drop(name)

    @abstractmethod
    def floor(self) -> Floor:
        """On the same disk, with the same durability, as the stores that are measured."""


class Sqlite(Database):
    """A file per store. What is thrown away lies in the scratch folder, on the disk that is measured."""

    name = "sqlite"

    def has(self, store: str) -> bool:
        return (self.keep / f"{store}.db").exists()

    def url(self, store: str) -> str:
        return f"sqlite:///{self.scratch}/{store}.db"

    def kept(self, store: str) -> None:
        shutil.move(self.scratch / f"{store}.db", self.keep / f"{store}.db")

    def copied(self, store: str, name: str) -> str:
        shutil.copyfile(self.keep / f"{store}.db", self.scratch / f"{name}.db")
        return self.url(name)

    def drop(self, name: str) -> None:
        for file in self.scratch.glob(f"{name}.db*"):
            file.unlink()

    def floor(self) -> Floor:
        connection = sqlite3.connect(self.scratch / "raw.db", isolation_level=None)
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA synchronous = NORMAL")
        connection.execute("DROP TABLE IF EXISTS rows")
        return Floor(connection, RAW[self.name])


@dataclass(frozen=True)
class _Names:
    """A server has one space of names, and other people's databases in it."""

    kept: str = "databuild_bench_{}"
    scratch: str = "databuild_bench_scratch_{}"


class Postgres(Database):
    """A database per store on the server that the URL names; its role has to be allowed to create them."""

    name = "postgres"

    def __init__(self, url: str, keep: Path, scratch: Path) -> None:
        super().__init__(keep, scratch)
        self._server = sa.make_url(url)
        self._names = _Names()

    def _connect(self, database: str | None = None) -> Any:
        import psycopg

        url = self._server if database is None else self._server.set(database=database)
        plain = url.set(drivername="postgresql").render_as_string(hide_password=False)
        return psycopg.connect(plain, autocommit=True)

    def _execute(self, *statements: str) -> list[Any]:
        with self._connect() as connection:
            for statement in statements:
                found = connection.execute(statement)
            return list(found.fetchall()) if found.description else []

    def _url(self, database: str) -> str:
        return self._server.set(database=database).render_as_string(hide_password=False)

    def has(self, store: str) -> bool:
        name = self._names.kept.format(store)
        return bool(self._execute(f"SELECT 1 FROM pg_database WHERE datname = '{name}'"))

    def url(self, store: str) -> str:
        name = self._names.scratch.format(store)
        self._execute(f"DROP DATABASE IF EXISTS {name}", f"CREATE DATABASE {name}")
        return self._url(name)

    def kept(self, store: str) -> None:
        scratch, kept = self._names.scratch.format(store), self._names.kept.format(store)
        with self._connect(scratch) as connection:
            connection.execute("VACUUM ANALYZE")
        self._execute(f"ALTER DATABASE {scratch} RENAME TO {kept}")

    def copied(self, store: str, name: str) -> str:
        copy = self._names.scratch.format(name)
        self._execute(
            f"DROP DATABASE IF EXISTS {copy} WITH (FORCE)",
            f"CREATE DATABASE {copy} TEMPLATE {self._names.kept.format(store)}",
        )
        return self._url(copy)

    def drop(self, name: str) -> None:
        self._execute(f"DROP DATABASE IF EXISTS {self._names.scratch.format(name)} WITH (FORCE)")

    def floor(self) -> Floor:
        self.url("raw")
        return Floor(self._connect(self._names.scratch.format("raw")), RAW[self.name])
