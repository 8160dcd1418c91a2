"""The last heartbeat of each launch (rule 6.9), the sessions of a server, and the tries of subjects that are set aside.

They are outside the log: none is a fact to keep, and a heartbeat must not wait for the lock of the log behind a long
transaction.
"""

from __future__ import annotations

import os
import sqlite3
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from fcntl import LOCK_EX, flock
from typing import NamedTuple

from databuild_dagster.model.logs import logger
from databuild_dagster.store.backends.base import Connection, Database, Keys
from databuild_dagster.store.backends.sqlite_file import AtEnd, connected, way_to_read
from databuild_dagster.store.errors import HeartbeatsUnusable
from databuild_dagster.store.format import HEARTBEAT_COLUMNS, HEARTBEATS, SESSION_COLUMNS, SESSIONS, TRIES, TRY_COLUMNS

_BEAT = f"INSERT INTO {HEARTBEATS} (launch_id, at) VALUES (?, ?) ON CONFLICT (launch_id) DO UPDATE SET at = excluded.at"
_READ = f"SELECT launch_id, at FROM {HEARTBEATS} WHERE launch_id = ?"
_NEWEST = f"SELECT launch_id FROM {HEARTBEATS} WHERE substr(launch_id, 1, ?) = ? ORDER BY at DESC LIMIT 1"
_SINCE = f"SELECT launch_id, at FROM {HEARTBEATS} WHERE at >= ? AND substr(launch_id, 1, ?) = ? ORDER BY at DESC"
_FORGET = f"DELETE FROM {HEARTBEATS} WHERE launch_id IN (SELECT launch_id FROM {HEARTBEATS} WHERE at < ? LIMIT ?)"
_SERVER_TIME = "SELECT extract(epoch FROM clock_timestamp())"
_NOTE_SESSION = (
    f"INSERT INTO {SESSIONS} (dagster_run_id, address, holder, at) VALUES (?, ?, ?, ?) "
    "ON CONFLICT (dagster_run_id, address) DO UPDATE SET holder = excluded.holder, at = excluded.at"
)
_READ_SESSIONS = f"SELECT dagster_run_id, address, holder, at FROM {SESSIONS} ORDER BY at"
_FORGET_SESSION = f"DELETE FROM {SESSIONS} WHERE dagster_run_id = ? AND address = ?"

_NOTE_FIRST_TRY = (
    f"INSERT INTO {TRIES} (location, name, n, at, again_at) VALUES (?, ?, ?, ?, ?) ON CONFLICT (location, name) "
    "DO UPDATE SET n = excluded.n, at = excluded.at, again_at = excluded.again_at"
)
_READ_TRIES = f"SELECT name, n, at, again_at FROM {TRIES} WHERE location = ?"
_READ_RESTING = f"SELECT name FROM {TRIES} WHERE location = ? AND again_at > ? AND again_at <= ?"
_OF_NAMES = "WHERE location = ? AND name IN (SELECT value FROM json_each(?))"
_NOTE_TRIES = f"UPDATE {TRIES} SET n = ?, at = ?, again_at = ? {_OF_NAMES}"
_FORGET_TRIES = f"DELETE FROM {TRIES} {_OF_NAMES}"

_CREATE = f"CREATE TABLE IF NOT EXISTS {HEARTBEATS} {HEARTBEAT_COLUMNS} WITHOUT ROWID"
_CREATE_SESSIONS = f"CREATE TABLE IF NOT EXISTS {SESSIONS} {SESSION_COLUMNS} WITHOUT ROWID"
_CREATE_TRIES = f"CREATE TABLE IF NOT EXISTS {TRIES} {TRY_COLUMNS} WITHOUT ROWID"

#: SQLite's error codes for a file that is no database or is damaged.
_DAMAGED = (sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_CORRUPT)

_log = logger(__name__)

#: Heartbeats deleted at once.
MAX_FORGOTTEN = 10_000


class NotedSession(NamedTuple):
    """A session on a server outside our processes, which does not end when its user does."""

    dagster_run_id: str
    #: Its address, without a secret.
    address: str
    #: The process that uses it.
    holder: str
    #: Its start, in seconds since 1970 UTC.
    at: float


class Tries(NamedTuple):
    """The tries in a row of a subject that a location's ticks set aside (rule 11.7)."""

    name: str
    n: int
    #: The time of the last try.
    at: float
    #: A tick before this time does not try it.
    again_at: float


class Heartbeats:
    """Last heartbeats by launch, sessions in use, and tries. Raises `HeartbeatsUnusable`, or `StoreUnusable` of a server."""

    def __init__(self, place: Database | FileAside) -> None:
        self._place = place

    @property
    def on_server(self) -> bool:
        """Whether other machines share them."""
        return not isinstance(self._place, FileAside) and self._place.dialect == "postgresql"

    def server_time(self) -> float:
        """The server's clock, in seconds since 1970 UTC."""
        with self._place.aside() as connection:
            return float(connection.execute(_SERVER_TIME).fetchone()[0])

    def beat(self, launch_ids: Iterable[str], at: float) -> None:
        """Record that launches are alive at a time, in seconds since 1970 UTC."""
        beats = [(launch_id, at) for launch_id in launch_ids]
        with self._place.aside() as connection:
            connection.executemany(_BEAT, beats)

    def last(self, launch_ids: Iterable[str]) -> dict[str, float]:
        """The last heartbeat of each; a launch without any is left out."""
        with self._place.aside() as connection:
            rows = (connection.execute(_READ, (launch_id,)).fetchone() for launch_id in launch_ids)
            return {row[0]: row[1] for row in rows if row}

    def newest(self, prefix: str) -> str | None:
        """The name with the prefix that has the last heartbeat. Scans all heartbeats."""
        with self._place.aside() as connection:
            row = connection.execute(_NEWEST, (len(prefix), prefix)).fetchone()
        return None if row is None else str(row[0])

    def since(self, at: float, prefix: str = "") -> list[tuple[str, float]]:
        """The names with the prefix and the times of the heartbeats from a time on, the newest first. Scans all heartbeats."""
        with self._place.aside() as connection:
            return [(name, beat_at) for name, beat_at in connection.execute(_SINCE, (at, len(prefix), prefix))]

    def forget_before(self, at: float) -> None:
        """Delete heartbeats of launches that ended long ago, at most `MAX_FORGOTTEN`, because other heartbeats wait."""
        with self._place.aside() as connection:
            connection.execute(_FORGET, (at, MAX_FORGOTTEN))

    def note_session(self, session: NotedSession) -> None:
        """Record the session of a Dagster run, so that another process ends it if its process dies."""
        with self._place.aside() as connection:
            connection.execute(_NOTE_SESSION, session)

    def sessions(self) -> list[NotedSession]:
        """Every recorded session, the oldest first: sessions in use and sessions of dead processes."""
        with self._place.aside() as connection:
            return [NotedSession(*row) for row in connection.execute(_READ_SESSIONS)]

    def forget_session(self, dagster_run_id: str, address: str) -> None:
        """Delete a session that has ended. A second call has no effect."""
        with self._place.aside() as connection:
            connection.execute(_FORGET_SESSION, (dagster_run_id, address))

    def tries(self, location: str) -> dict[str, Tries]:
        """By the names of the subjects that a location's ticks set aside."""
        with self._place.aside() as connection:
            return {row[0]: Tries(*row) for row in connection.execute(_READ_TRIES, (location,))}

    def resting(self, location: str, now: float, until: float) -> list[str]:
        """The subjects of a location whose next try is after `now`, and not after `until`. Each tick reads them."""
        with self._place.aside() as connection:
            return [name for (name,) in connection.execute(_READ_RESTING, (location, now, until))]

    def note_tries(self, location: str, tries: Iterable[Tries], forgotten: Iterable[str] = ()) -> None:
        """Record tries of a location, and delete the tries of subjects that are planned again."""
        again: dict[tuple[int, float, float], list[str]] = {}
        for one in tries:
            again.setdefault((one.n, one.at, one.again_at), []).append(one.name)
        with self._place.aside() as connection:
            for numbers, names in again.items():
                if numbers[0] == 1:
                    connection.executemany(_NOTE_FIRST_TRY, [(location, name, *numbers) for name in names])
                else:
                    # Many refs mostly begin to raise together, and a statement for each takes ten times as long.
                    connection.execute(_NOTE_TRIES, (*numbers, location, Keys(names)))
            connection.execute(_FORGET_TRIES, (location, Keys(forgotten)))


class FileAside:
    """A small SQLite file, whose loss is harmless; without a path, a database of this process.

    It is written without waiting for the disk, so a loss of power may damage it. A damaged file is renamed to `….damaged`, and
    an empty file takes its place: a launch is judged lost only after a lease of silence anyway.
    """

    def __init__(self, path: str | None) -> None:
        self.path = path
        self._local = threading.local()
        self._lock = threading.RLock()
        self._shared = None if path is not None else self._opened(":memory:")

    @contextmanager
    def aside(self) -> Iterator[Connection]:
        if self._shared is not None:
            with self._lock:
                yield self._shared
            return
        try:
            yield self._connection()
        except sqlite3.Error as error:
            # The next use opens the file again, and looks whether it is damaged.
            self._local.opened_as = None
            raise HeartbeatsUnusable(url=self.path, why=str(error)) from error

    def _connection(self) -> sqlite3.Connection:
        assert self.path is not None
        # Another process may have put a new file in the place of a damaged one.
        if getattr(self._local, "opened_as", None) != (os.getpid(), _file_number(self.path)):
            self._local.connection = self._sound(self.path)
            self._local.at_end = AtEnd(self._local.connection.close)
            self._local.opened_as = os.getpid(), _file_number(self.path)
        found: sqlite3.Connection = self._local.connection
        return found

    def _sound(self, path: str) -> sqlite3.Connection:
        try:
            return self._opened(path)
        except sqlite3.DatabaseError as error:
            if error.sqlite_errorcode not in _DAMAGED:
                raise
        with open(f"{path}.lock", "a") as lock:
            flock(lock, LOCK_EX)
            try:
                return self._opened(path)
            except sqlite3.DatabaseError as error:
                if error.sqlite_errorcode not in _DAMAGED:
                    raise
                _log.warning("databuild: %s is damaged (%s); it is kept as %s.damaged.", path, error, path)
            for end in ("-wal", "-shm", ""):
                with suppress(FileNotFoundError):
                    os.replace(f"{path}{end}", f"{path}.damaged{end}")
            return self._opened(path)

    def _opened(self, path: str) -> sqlite3.Connection:
        # A home that is only read, and has none.
        connection = connected(":memory:" if way_to_read(path) and not os.path.exists(path) else path)
        connection.execute("PRAGMA synchronous = OFF")
        for statement in (_CREATE, _CREATE_SESSIONS, _CREATE_TRIES):
            connection.execute(statement)
        ((found,),) = connection.execute("PRAGMA quick_check(1)")
        if found != "ok":
            damaged = sqlite3.DatabaseError(found)
            damaged.sqlite_errorcode = sqlite3.SQLITE_CORRUPT
            raise damaged
        return connection


def _file_number(path: str) -> int | None:
    try:
        return os.stat(path).st_ino
    except OSError:
        # To open it says why.
        return None
