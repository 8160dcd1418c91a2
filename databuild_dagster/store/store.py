"""An event log with its projections: opening and refusing, transactions, consistent snapshots."""

import atexit
import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import cached_property, wraps
from typing import Any, NamedTuple, NoReturn, ParamSpec, TypeVar
from urllib.parse import unquote
from weakref import WeakKeyDictionary

from databuild_dagster.store import errors, log
from databuild_dagster.store.backends.base import Connection, Database
from databuild_dagster.store.format import LOG_VERSION, META, PLACE, PROJECTION_VERSION, STORE_ID
from databuild_dagster.store.log import NOTHING_SEEN, Mark, Witness
from databuild_dagster.store.places import Places
from databuild_dagster.store.unit_of_work import UnitOfWork

P = ParamSpec("P")
T = TypeVar("T")

#: Connections that a server cuts within a transaction, before its attempts end. Each new connection waits for the server.
MAX_CUTS = 3
#: The versions of this code, as the database has them.
_KNOWN = (str(LOG_VERSION), str(PROJECTION_VERSION))
_DESCRIBE = f"INSERT INTO {META} (key, value) VALUES (?, ?) ON CONFLICT (key) DO UPDATE SET value = excluded.value"


class Identity(NamedTuple):
    """A store among its copies (rule 3.11)."""

    #: None for a store of an older version.
    id: str | None
    #: The place where the id was given to it.
    place: str | None
    #: The place of the database that is open; None where no other process can open it.
    here: str | None

    @property
    def is_in_place(self) -> bool:
        return self.place == self.here


def new_store_id() -> str:
    return os.urandom(16).hex()


class Store:
    """An event log with its projections. Thread-safe; a transaction belongs to a single thread.

    No other process opens a store that is not `shared`.
    """

    def __init__(self, url: str, *, check_projections: bool = True, shared: bool = True) -> None:
        self.url = url
        self.database = database_of(url)
        if shared:
            self.database.check_place()
        #: The path of the file, for a database in a file.
        self.path = self.database.path
        self._check_projections = check_projections
        self._meta: dict[str, str] = {}
        #: The last event that this process has seen, or that a process of its home had seen before it.
        self._seen = NOTHING_SEEN
        self._noted = NOTHING_SEEN
        self._home: str | None = None
        try:
            self._prepare()
        except BaseException as error:
            self.database.raise_trouble(error)

    def _prepare(self) -> None:
        connection = self._connection()
        if self._versions(connection) is None:
            if others := self.database.others(connection):
                raise errors.ForeignDatabase(
                    url=self.database.place, why=f"it holds the tables of something else ({others[0]})"
                )
            self._create(connection)
        self._check_versions(self.versions())

    @cached_property
    def places(self) -> Places:
        """The whole paths of recorded paths (rule 3.10)."""
        home = None if self.path is None else os.path.dirname(self.path)
        return Places(home)

    def _check_versions(self, found: tuple[int, int]) -> None:
        """Raises `NewerStore`, and `OlderProjection` unless the store may be older."""
        if found == self.known_versions:
            return
        facts = {"url": self.database.place, "found": _named(found), "known": _named(self.known_versions)}
        if found[0] > LOG_VERSION or found[1] > PROJECTION_VERSION:
            raise errors.NewerStore(**facts)
        if self._check_projections:
            raise errors.OlderProjection(**facts)

    known_versions = (LOG_VERSION, PROJECTION_VERSION)

    def versions(self) -> tuple[int, int]:
        """The versions of the log and of the tables that are computed from it."""
        found = self._versions(self._connection())
        assert found is not None, "the tables were created"
        return found

    def _versions(self, connection: Connection) -> tuple[int, int] | None:
        if not self.database.has_table(connection, META):
            return None
        self._meta = found = dict(connection.execute(f"SELECT key, value FROM {META}").fetchall())
        return self._read_versions(found.get("log_version"), found.get("projection_version"))

    def _read_versions(self, log_version: str | None, tables_version: str | None) -> tuple[int, int]:
        """The versions from their texts. Raises `ForeignDatabase`."""
        try:
            return int(log_version or ""), int(tables_version or "")
        except ValueError:
            why = f"its table {META} does not have its version"
            raise errors.ForeignDatabase(url=self.database.place, why=why) from None

    def _create(self, connection: Connection) -> None:
        """All tables or none; of two processes at once the second finds them."""
        self.database.begin(connection)
        try:
            if self._versions(connection) is None:
                for statement in self.database.ddl():
                    connection.execute(statement)
                entries: dict[str, int | str] = {"log_version": LOG_VERSION, "projection_version": PROJECTION_VERSION}
                if (here := self.database.whereabouts(connection)) is not None:
                    entries |= {STORE_ID: new_store_id(), PLACE: here}
                connection.executemany(
                    f"INSERT INTO {META} (key, value) VALUES (?, ?)",
                    [(key, str(value)) for key, value in entries.items()],
                )
            self.database.commit(connection)
        finally:
            self.database.end(connection)

    def _connection(self) -> Connection:
        return self.database.connection()

    def identity(self) -> Identity:
        """The id of the store, the place where it was given, and the place of the open database."""
        with self.reading() as connection:
            found = dict(connection.execute(f"SELECT key, value FROM {META}").fetchall())
            return Identity(found.get(STORE_ID), found.get(PLACE), self.database.whereabouts(connection))

    def describe(self, entries: Mapping[str, str]) -> None:
        """Record facts about the store itself beside its versions."""
        with self.writing() as work:
            for entry in entries.items():
                work.connection.execute(_DESCRIBE, entry)
        self._meta |= entries
        self.__dict__.pop("places", None)

    @contextmanager
    def writing(self) -> Iterator[UnitOfWork]:
        """A transaction: committed when the block ends, rolled back when it raises.

        Raises `NewerStore` after a newer version has migrated the store (rule 3.4).
        """
        # Other threads see further events meanwhile.
        database, seen = self.database, self._seen
        try:
            connection = self._connection()
            database.begin(connection, _head_after(seen))
        except BaseException as error:
            database.raise_trouble(error)
        try:
            work = UnitOfWork(connection, self._checked_head(connection.execute(*_head_after(seen)).fetchall(), seen))
            yield work
            work.flush()
            database.commit(connection)
            self._seen = work.appended or self._seen
        except BaseException as error:
            database.raise_trouble(error)
        finally:
            try:
                database.end(connection)
            except BaseException:
                # After an interrupt all writers would wait for this thread.
                database.end(connection)
                raise

    def look(self) -> log.Head:
        """The log's end, which this process has seen from now on. Raises as `writing`, and waits for no writer."""
        seen = self._seen
        return self._checked_head(self.ask(*_head_after(seen)), seen)

    def _checked_head(self, found: Sequence[Sequence[Any]], seen: Mark) -> log.Head:
        """The log's end. Raises `NewerStore`, `OlderProjection`, `LogWentBack`, and `StoreReplaced` for a log that took over."""
        if not found:
            self._check_versions(self.versions())
            self.check_head(0)
            return log.BEFORE_ALL
        ((seq, at, *versions, command_id, command_seen),) = found
        if tuple(versions) != _KNOWN:
            self._check_versions(self._read_versions(*versions))
        self.check_head(seq)
        if seen.seq and command_seen != seen.command_id:
            self._raise_other_log(
                f"its event {seen.seq:,} is another one than this process or one of its home has seen"
            )
        if seq > self._seen.seq:
            self._seen = Mark(seq, command_id)
        return log.Head(seq, at)

    def check_head(self, seq: int) -> None:
        """Raise `LogWentBack` if the log ends before an event that was seen, or `StoreReplaced` if that log took over (rule 3.13)."""
        if seq < (seen := self._seen.seq):
            # Other threads see further events meanwhile.
            with self.reading() as connection:
                now = log.head(connection).seq
            if now < seen:
                self._raise_other_log(f"it has {now:,} events, and this process or one of its home has seen {seen:,}")

    def _raise_other_log(self, why: str) -> NoReturn:
        if self._meta.get(STORE_ID) != self.identity().id:
            raise errors.StoreReplaced(url=self.database.place)
        raise errors.LogWentBack(url=self.database.place, why=why)

    def watch(self, home: str) -> None:
        """Remember in a home what this process has seen, for processes that begin later, and begin with what they left there.

        A SQLite file at its place does not go back, but for a loss of power.
        """
        if self.database.is_private or (store_id := self._meta.get(STORE_ID)) is None:
            return
        self._home = home
        if self.path is None or not self.identity().is_in_place:
            self._seen = self._noted = Witness(home, store_id).last_seen()
        _watched[self] = os.getpid()

    def note_seen(self) -> None:
        """Note the last event that this process has seen, unless it is noted."""
        seen, store_id = self._seen, self._meta.get(STORE_ID)
        if self._home is not None and store_id is not None and seen.seq > self._noted.seq:
            # A note must not outlive the event.
            with suppress(OSError):
                self.database.sync()
                Witness(self._home, store_id).note(seen)
                self._noted = seen

    def accept(self) -> None:
        """Forget what was seen: a person takes the log as it is."""
        self._seen = self._noted = NOTHING_SEEN

    @contextmanager
    def reading(self) -> Iterator[Connection]:
        """A consistent snapshot that never blocks writers; inside a transaction of this thread it sees its changes."""
        try:
            with self.database.looking() as connection:
                yield connection
        except BaseException as error:
            self.database.raise_trouble(error)

    def ask(self, sql: str, parameters: Sequence[Any] | Mapping[str, Any] = ()) -> list[Any]:
        """The answer to a query."""
        try:
            return self.database.ask(sql, parameters)
        except BaseException as error:
            self.database.raise_trouble(error)

    def close(self) -> None:
        """Close this thread's connections."""
        self.note_seen()
        self.database.close()


def _head_after(seen: Mark) -> tuple[str, tuple[int]]:
    """The question for the log's end, and for the event in the place of the last seen event."""
    return log.HEAD_TO_WRITE, (seen.seq,)


#: The stores that a process watches for a home, each with the process that opened it.
_watched: WeakKeyDictionary[Store, int] = WeakKeyDictionary()


def again_if_cut(transact: Callable[P, T]) -> Callable[P, T]:
    """A transaction that is tried again when a server has cut its connection.

    A cut COMMIT may have been recorded, so a second call must find out.
    """

    @wraps(transact)
    def patiently(*args: P.args, **more: P.kwargs) -> T:
        for _ in range(MAX_CUTS):
            with suppress(errors.StoreCut):
                return transact(*args, **more)
        return transact(*args, **more)

    return patiently


@atexit.register
def _note_at_end() -> None:
    """A fork ends without it."""
    for store, pid in list(_watched.items()):
        if pid == os.getpid():
            store.note_seen()


def _named(versions: tuple[int, int]) -> str:
    return f"log {versions[0]}, tables {versions[1]}"


def open_store(url: str, home: str | None = None) -> Store:
    """The store behind a database URL, watched by a home.

    Raises `StoreUnusable`, `NewerStore`, `OlderProjection`, `UnsupportedDatabase`.
    """
    store = Store(url)
    if home is not None:
        store.watch(home)
    return store


_FILE = "sqlite:///"


def database_of(url: str) -> Database:
    """The database that a url names. A database is imported on use, and a file's url needs no SQLAlchemy.

    Raises `UnsupportedDatabase`, `MissingDriver`, `StoreUnusable`.
    """
    if url.startswith(_FILE):
        return _sqlite(url, unquote(url.removeprefix(_FILE).partition("?")[0]))
    import sqlalchemy as sa

    try:
        parsed = sa.make_url(url)
    except (sa.exc.ArgumentError, ValueError):
        # The text after an @ is not a password.
        raise errors.UnsupportedDatabase(url=url.rpartition("@")[2]) from None
    if _has_bare_at(url):
        raise errors.AtInPassword(url=url)
    backend = parsed.get_backend_name()
    if backend == "sqlite":
        return _sqlite(url, parsed.database or "")
    if backend == "postgresql":
        from databuild_dagster.store.backends.postgres import PostgresDatabase

        return PostgresDatabase(url, parsed)
    raise errors.UnsupportedDatabase(url=parsed.render_as_string(hide_password=True))


def _has_bare_at(url: str) -> bool:
    """SQLAlchemy ends a password at its first `@`, so the driver would quote the rest of it as the name of a host."""
    after = url.partition("://")[2].partition(":")[2]
    return after.count("@") > 1 or ("@" in after and re.match(r"\d+[/?]", after) is not None)


def _sqlite(url: str, path: str) -> Database:
    from databuild_dagster.store.backends.sqlite import SqliteDatabase

    return SqliteDatabase(url, path)
