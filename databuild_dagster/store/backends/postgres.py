"""The build state in PostgreSQL, for several machines, many writers, or a managed database.

A single writer at a time has an advisory lock for its transaction, so that seqs are gapless and in the order of commits. Statements go
through psycopg's pipeline: only a query whose answer is awaited costs a round trip. A few connections are kept for reuse; a
forked child makes its own.
"""

import os
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from itertools import islice
from typing import Any, NoReturn, TypeVar

import sqlalchemy as sa

from databuild_dagster.model.redaction import keep_secret, without_secrets
from databuild_dagster.model.wording import one_line
from databuild_dagster.store.backends.base import Connection, Cursor, Database, Keys, Question
from databuild_dagster.store.backends.postgres_sql import in_bulk, translated
from databuild_dagster.store.errors import MissingDriver, StoreAway, StoreBusy, StoreCut, StoreSilent, StoreUnusable
from databuild_dagster.store.format import META

try:
    import psycopg
    from psycopg.pq import PipelineStatus
    from psycopg.types.array import ListDumper

    from databuild_dagster.store.backends.postgres_patience import (
        UNBOUNDED,
        Away,
        NoAnswer,
        Patience,
        PatientConnection,
        Rejected,
        bounded,
        connected,
    )
except ImportError:
    raise MissingDriver() from None

T = TypeVar("T")

#: Errors of the database itself; any other error of the driver is our fault and is raised as it is.
_TROUBLE = (
    psycopg.OperationalError,
    psycopg.InterfaceError,
    psycopg.InternalError,
    psycopg.errors.InsufficientPrivilege,
    psycopg.errors.InvalidSchemaName,
)

#: The errors of a statement that the server stopped because it took longer than a bound.
_STOPPED = (psycopg.errors.LockNotAvailable, psycopg.errors.QueryCanceled)
#: The first errors of a connection that the server has cut.
_CUT = (
    psycopg.errors.AdminShutdown,
    psycopg.errors.CrashShutdown,
    psycopg.errors.CannotConnectNow,
    psycopg.errors.IdleInTransactionSessionTimeout,
)
#: The errors of a transaction on a replica, or on a server that has become a replica.
_READS_ONLY = (psycopg.errors.ReadOnlySqlTransaction, psycopg.errors.FeatureNotSupported)
#: The errors of a query whose tables are swapped in that moment.
_SWAPPED = (psycopg.errors.DeadlockDetected, psycopg.errors.UndefinedTable)

#: A connection that was idle for longer is checked before use.
DOUBT_AFTER_SECONDS = 10.0
#: Connections kept for reuse while threads work; a server has a hundred.
MAX_KEPT = 4
#: A working process closes the other connections at this interval.
REST_SECONDS = 10.0
#: Rows that a statement writes at most.
ROWS_AT_ONCE = 10_000
#: Fewer rows are written row by row, with a plan that the server has.
FEW_ROWS = 4

#: Each statement sees earlier commits: the first query comes after the lock. The role's defaults do not matter.
_BEGIN = "BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE"
_LOOK = "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY"
#: A snapshot waits until tables are swapped: an earlier snapshot would find the new tables empty. The lock itself takes none.
_SHARE = f"LOCK TABLE {META} IN ACCESS SHARE MODE"
_EXCLUDE = f"LOCK TABLE {META} IN ACCESS EXCLUSIVE MODE"
#: A query that checks the connection.
_PING = "SELECT 1"
#: Ours among the advisory locks of a database; each schema has its own log.
_LOCK_SPACE = 0x64617461
_LOCK = f"SELECT pg_advisory_xact_lock({_LOCK_SPACE}, hashtext(current_schema()))"
_TRY = f"SELECT pg_try_advisory_lock({_LOCK_SPACE}, hashtext(current_schema() || ?))"
_FREE = f"SELECT pg_advisory_unlock({_LOCK_SPACE}, hashtext(current_schema() || ?))"

_PARTS = """
SELECT CASE relkind WHEN 'r' THEN 'table' WHEN 'i' THEN 'index' ELSE 'view' END, relname::text FROM pg_class
WHERE relnamespace = to_regnamespace(current_schema()) AND relkind IN ('r', 'i', 'v')
UNION ALL SELECT 'trigger', tgname::text FROM pg_trigger
WHERE tgrelid = (
    SELECT oid FROM pg_class WHERE relname = 'databuild_events' AND relnamespace = to_regnamespace(current_schema()))
  AND tgenabled <> 'D' AND NOT tgisinternal"""
_WHERE = "SELECT system_identifier::text, current_database()::text, current_schema()::text FROM pg_control_system()"
#: PostgreSQL's own.
_PORT = 5432
_HAS_TABLE = "SELECT 1 FROM pg_tables WHERE schemaname = current_schema() AND tablename = ?"
_COLUMNS = (
    "SELECT column_name::text FROM information_schema.columns WHERE table_schema = current_schema() AND table_name = ?"
)


#: Parameters of libpq that are secret.
_SECRETS = ("password", "sslpassword", "passfile")


class _Answered(list[Any]):
    """Rows that were fetched before their query is executed."""

    def fetchone(self) -> Any:
        return self[0] if self else None

    def fetchall(self) -> list[Any]:
        return self


class PostgresConnection:
    """`database.Connection` over a connection of psycopg."""

    def __init__(self, parameters: Mapping[str, Any]) -> None:
        self._parameters = parameters
        self.raw = self._connected(Patience(parameters))
        self.in_transaction = False
        self.used_at = time.monotonic()
        self._pipeline: Any = None
        #: Answers that were fetched at the start of the transaction.
        self._answered: dict[str, _Answered] = {}

    def _connected(self, patience: Patience) -> PatientConnection:
        try:
            raw = connected(self._parameters, patience)
        except psycopg.ProgrammingError as error:
            # libpq does not know an option of the url.
            raise Rejected(str(error)) from None
        raw.adapters.register_dumper(Keys, ListDumper)
        return raw

    def execute(self, sql: str, parameters: Sequence[Any] | Mapping[str, Any] = (), /) -> Cursor:
        if (answered := self._answered.pop(sql, None)) is not None:
            return answered
        return self.raw.execute(translated(sql), parameters)

    def executemany(self, sql: str, parameters: Iterable[Sequence[Any]], /) -> object:
        statement, rows = in_bulk(sql), iter(parameters)
        while chunk := list(islice(rows, ROWS_AT_ONCE)):
            if statement is None or len(chunk) < FEW_ROWS or not _are_apart(chunk, statement.key):
                with self.raw.cursor() as cursor:
                    cursor.executemany(translated(sql), chunk)
            else:
                columns = zip(statement.types, zip(*chunk, strict=True), strict=True)
                self.raw.execute(statement.sql, [_array(kind, values) for kind, values in columns])
        return None

    def begin(self, *statements: str, soon: Sequence[Question] = ()) -> None:
        """Send the statements with the next statement, or with the queries `soon`, whose answers are fetched now.

        A cut connection is replaced, because the transaction has done nothing yet.
        """
        assert not self.in_transaction, "a transaction within another would commit half of it"
        self.patiently(lambda: self._begin(statements, soon))

    def patiently(self, ask: Callable[[], T]) -> T:
        """The answer to a question that may be asked again, over a new connection while the server cuts them or only reads."""
        patience = Patience(self._parameters)
        while True:
            try:
                return ask()
            except (psycopg.OperationalError, *_READS_ONLY) as error:
                if not self.raw.closed and not isinstance(error, (*_CUT, *_READS_ONLY)):
                    raise
                patience.rest(error)
                self.raw.close()
                self.undo()
                self.raw = self._connected(patience)

    def _begin(self, statements: Sequence[str], soon: Sequence[Question]) -> None:
        self._answered.clear()
        self.in_transaction = True
        pipeline = self.raw.pipeline()
        pipeline.__enter__()
        self._pipeline = pipeline
        for statement in statements:
            self.raw.execute(statement)
        sent = {sql: self.execute(sql, parameters) for sql, parameters in soon}
        self._answered = {sql: _Answered(cursor.fetchall()) for sql, cursor in sent.items()}

    def commit(self) -> None:
        assert self.in_transaction, "a rolled back transaction cannot be committed"
        self._answered.clear()
        done = self.raw.execute("COMMIT")
        self._end_pipeline()
        if done.statusmessage != "COMMIT":
            # After an error that the caller has swallowed.
            raise psycopg.InternalError(f"a transaction that had failed was ended by {done.statusmessage}")
        self.in_transaction = False

    def undo(self) -> None:
        """Roll back in any state; a connection that cannot is closed, which rolls back as well."""
        try:
            with suppress(psycopg.Error):
                self._end_pipeline()
            self._pipeline = None
            if self.raw.pgconn.pipeline_status != PipelineStatus.OFF:
                raise psycopg.OperationalError("interrupted between entering a pipeline and knowing of it")
            self.raw.execute("ROLLBACK")
        except psycopg.Error:
            self.raw.close()
        self._answered.clear()
        self.in_transaction = False

    def _end_pipeline(self) -> None:
        if self._pipeline is not None:
            self._pipeline.__exit__(None, None, None)
            self._pipeline = None

    def lives(self, *, for_sure: bool = False) -> bool:
        """Check an idle connection by a query."""
        if not self.raw.closed and (for_sure or time.monotonic() - self.used_at > DOUBT_AFTER_SECONDS):
            try:
                self.raw.execute(_PING)
            except psycopg.Error:
                self.raw.close()
        return not self.raw.closed


class PostgresDatabase(Database):
    """A schema of a PostgreSQL database: the first on the search path of the URL's user."""

    dialect = "postgresql"
    errors = (psycopg.Error,)

    def __init__(self, url: str, parsed: sa.URL) -> None:
        self.url = url
        self.place = without_secrets(parsed.render_as_string(hide_password=True))
        self._parameters = _parameters_of(parsed)
        _keep_secret(self._parameters)
        named = self._parameters
        self._address = f"{named.get('host') or 'localhost'}:{named.get('port') or _PORT}"
        self._local = threading.local()
        self._free: list[PostgresConnection] = []
        self._rest: threading.Timer | None = None
        self._pid = os.getpid()

    # Connections

    def connection(self) -> PostgresConnection:
        self._forget_the_parents()
        connection: PostgresConnection | None = getattr(self._local, "connection", None)
        if connection is None:
            connection = self._local.connection = self._take()
        return connection

    def _take(self, *, for_sure: bool = False) -> PostgresConnection:
        self._forget_the_parents()
        while self._free:
            with suppress(IndexError):
                connection = self._free.pop()
                if connection.lives(for_sure=for_sure):
                    return connection
        return PostgresConnection(self._parameters)

    def _give_back(self, connection: PostgresConnection) -> None:
        if getattr(self._local, "connection", None) is connection:
            self._local.connection = None
        connection.used_at = time.monotonic()
        if not connection.raw.closed and not connection.in_transaction and len(self._free) < MAX_KEPT:
            self._free.append(connection)
            if len(self._free) > self.max_at_rest and self._rest is None:
                self._rest = threading.Timer(REST_SECONDS, self._close_others)
                self._rest.daemon = True
                # An interpreter that ends begins no thread.
                with suppress(RuntimeError):
                    self._rest.start()
        else:
            connection.raw.close()

    def _close_others(self) -> None:
        self._rest = None
        with suppress(IndexError):
            while len(self._free) > self.max_at_rest:
                self._free.pop(0).raw.close()

    def _forget_the_parents(self) -> None:
        """After a fork: the connections belong to the parent."""
        if self._pid != os.getpid():
            self._free, self._rest, self._local, self._pid = [], None, threading.local(), os.getpid()

    # Transactions

    def whereabouts(self, connection: Connection) -> str | None:
        """With the server's address, because a restored snapshot keeps the identifier of its system."""
        system, database, schema = connection.execute(_WHERE).fetchone()
        return f"database {database}, schema {schema} of {self._address}, system {system}"

    def has_table(self, connection: Connection, name: str) -> bool:
        """Looks in the schema of the lock: another schema on the search path may have its own log."""
        return connection.execute(_HAS_TABLE, (name,)).fetchone() is not None

    def begin(self, connection: Connection, *soon: Question) -> None:
        ours = _ours(connection)
        try:
            ours.begin(_BEGIN, _LOCK, soon=soon)
        except AssertionError:
            # The open transaction belongs to a caller.
            raise
        except BaseException:
            self.end(ours)
            raise

    def commit(self, connection: Connection) -> None:
        _ours(connection).commit()

    def end(self, connection: Connection) -> None:
        """The end of the transaction frees the lock."""
        ours = _ours(connection)
        try:
            if ours.in_transaction:
                ours.undo()
        finally:
            if getattr(self._local, "connection", None) is ours:
                self._give_back(ours)

    @contextmanager
    def looking(self) -> Iterator[Connection]:
        connection = self.connection()
        if connection.in_transaction:
            yield connection
            return
        try:
            connection.begin(_LOOK, _SHARE, soon=((_PING, ()),))
            yield connection
            connection.commit()
        except BaseException:
            connection.undo()
            raise
        finally:
            self._give_back(connection)

    def ask(self, sql: str, parameters: Sequence[Any] | Mapping[str, Any]) -> list[Any]:
        connection = self.connection()
        try:
            if connection.in_transaction:
                return connection.execute(sql, parameters).fetchall()
            try:
                return connection.patiently(lambda: connection.execute(sql, parameters).fetchall())
            except _SWAPPED:
                return connection.execute(sql, parameters).fetchall()
        finally:
            if not connection.in_transaction:
                self._give_back(connection)

    @contextmanager
    def aside(self) -> Iterator[Connection]:
        try:
            connection = self._take(for_sure=True)
        except psycopg.Error as error:
            self.raise_trouble(error)
        try:
            yield connection
        except psycopg.Error as error:
            self.raise_trouble(error)
        finally:
            self._give_back(connection)

    def exclude_lookers(self, connection: Connection) -> None:
        _ours(connection).raw.execute(_EXCLUDE)

    def take_time(self, connection: Connection) -> None:
        for statement in UNBOUNDED:
            _ours(connection).raw.execute(statement)

    @contextmanager
    def apart(self, connection: Connection) -> Iterator[None]:
        with _ours(connection).raw.transaction():
            yield

    def raise_trouble(self, error: BaseException) -> NoReturn:
        if isinstance(error, NoAnswer):
            raise StoreSilent(url=self.place, why=str(error)) from error
        if isinstance(error, Away):
            raise StoreAway(url=self.place, why=one_line(error).rstrip(".?")) from error
        if isinstance(error, _STOPPED):
            raise StoreBusy(url=self.place, why=one_line(error).rstrip(".")) from error
        if _is_cut(error):
            raise StoreCut(url=self.place, why=one_line(error).rstrip(".")) from error
        if isinstance(error, _TROUBLE):
            raise StoreUnusable(url=self.place, why=one_line(error).rstrip(".")) from error
        raise error

    def parts(self, connection: Connection) -> dict[tuple[str, str], str]:
        return dict.fromkeys(connection.execute(_PARTS), "")

    def columns(self, connection: Connection, table: str) -> set[str]:
        return {name for (name,) in connection.execute(_COLUMNS, (table,))}

    def damage(self, connection: Connection, most: int) -> list[str]:
        """None: the administrator's tool is `pg_amcheck`."""
        return []

    @contextmanager
    def alone(self, name: str) -> Iterator[bool]:
        with self.aside() as connection:
            is_free = bool(connection.execute(_TRY, (name,)).fetchone()[0])
            try:
                yield is_free
            finally:
                if is_free:
                    try:
                        connection.execute(_FREE, (name,))
                    except BaseException:
                        # The end of the connection frees the lock.
                        _ours(connection).raw.close()
                        raise

    def close(self) -> None:
        self._forget_the_parents()
        kept, self._free = self._free, []
        mine = getattr(self._local, "connection", None)
        self._local.connection = None
        for connection in (*kept, *((mine,) if mine is not None else ())):
            connection.raw.close()


def _is_cut(error: BaseException) -> bool:
    """The errors of libpq itself have no code."""
    if isinstance(error, (*_CUT, psycopg.errors.ReadOnlySqlTransaction)):
        return True
    return isinstance(error, psycopg.OperationalError) and error.sqlstate is None and not isinstance(error, Rejected)


def _ours(connection: Connection) -> PostgresConnection:
    assert isinstance(connection, PostgresConnection)
    return connection


def _parameters_of(parsed: sa.URL) -> dict[str, Any]:
    """The parameters of libpq, without the driver of the URL."""
    named = parsed.translate_connect_args(username="user", database="dbname")
    query = {name: value if isinstance(value, str) else ",".join(value) for name, value in parsed.query.items()}
    # Refs and reasons need the encoding in which they were written.
    named["client_encoding"] = "UTF8"
    return {"application_name": "databuild", **named, **bounded(query)}


def _keep_secret(parameters: Mapping[str, Any]) -> None:
    """libpq quotes a value that it does not understand. A password that is also a name is hidden in its url alone."""
    names = {value for name, value in parameters.items() if name not in _SECRETS}
    keep_secret(*(str(value) for name in _SECRETS if (value := parameters.get(name)) not in names))


def _are_apart(rows: Sequence[Sequence[Any]], key: Sequence[int]) -> bool:
    """No row of the table is written twice."""
    return not key or len({tuple(row[place] for place in key) for row in rows}) == len(rows)


_CONVERT = {"bigint": int, "float8": float, "text": str}


def _array(kind: str, column: Sequence[Any]) -> list[Any]:
    """The column with values of a single type, as psycopg demands."""
    convert = _CONVERT[kind]
    return [None if value is None else convert(value) for value in column]
