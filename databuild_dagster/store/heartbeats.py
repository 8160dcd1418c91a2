"""When each launch was last heard of (SPEC 6.9), and which processes work in which session of a server.

Outside the log, in a database of its own: neither is a fact worth keeping, and a heartbeat must never wait for the
lock of the log behind a long transaction.
"""

from __future__ import annotations

import os
import sqlite3
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import NamedTuple

from databuild_dagster.store.errors import StoreUnusable

_CREATE = "CREATE TABLE IF NOT EXISTS heartbeats (launch_id TEXT PRIMARY KEY, at REAL NOT NULL) WITHOUT ROWID"
_BEAT = "INSERT INTO heartbeats (launch_id, at) VALUES (?, ?) ON CONFLICT (launch_id) DO UPDATE SET at = excluded.at"
_READ = "SELECT launch_id, at FROM heartbeats WHERE launch_id = ?"
_FORGET = "DELETE FROM heartbeats WHERE launch_id IN (SELECT launch_id FROM heartbeats WHERE at < ? LIMIT ?)"
_CREATE_SESSIONS = """
CREATE TABLE IF NOT EXISTS sessions (
    dagster_run_id TEXT NOT NULL, address TEXT NOT NULL, holder TEXT NOT NULL, at REAL NOT NULL,
    PRIMARY KEY (dagster_run_id, address)
) WITHOUT ROWID
"""
_NOTE_SESSION = "INSERT OR REPLACE INTO sessions (dagster_run_id, address, holder, at) VALUES (?, ?, ?, ?)"
_READ_SESSIONS = "SELECT dagster_run_id, address, holder, at FROM sessions ORDER BY at"
_FORGET_SESSION = "DELETE FROM sessions WHERE dagster_run_id = ? AND address = ?"

#: Heartbeats dropped at once.
MAX_FORGOTTEN = 10_000


class NotedSession(NamedTuple):
    """A session on a server outside our processes, which does not end when its user does."""

    dagster_run_id: str
    #: How others reach it; no secret in it.
    address: str
    #: The process that uses it.
    holder: str
    #: Since when, in seconds since 1970 UTC.
    at: float


class Heartbeats:
    """Last heartbeats by launch, and sessions in use; `path` None keeps them in this process."""

    def __init__(self, path: str | None) -> None:
        self.path = path
        self._memory: dict[str, float] = {}
        self._sessions: dict[tuple[str, str], NotedSession] = {}
        self._local = threading.local()

    def beat(self, launch_ids: Iterable[str], at: float) -> None:
        """Say that launches are alive at a time, in seconds since 1970 UTC."""
        beats = [(launch_id, at) for launch_id in launch_ids]
        if self.path is None:
            self._memory.update(beats)
        else:
            with self._trouble_told(self.path) as connection:
                connection.executemany(_BEAT, beats)

    def last(self, launch_ids: Iterable[str]) -> dict[str, float]:
        """When each was last heard of; those never heard of are left out."""
        if self.path is None:
            return {launch_id: self._memory[launch_id] for launch_id in launch_ids if launch_id in self._memory}
        with self._trouble_told(self.path) as connection:
            rows = (connection.execute(_READ, (launch_id,)).fetchone() for launch_id in launch_ids)
            return {row[0]: row[1] for row in rows if row}

    def forget_before(self, at: float) -> None:
        """Drop heartbeats of launches that ended long ago; of very many some, for others wait to beat meanwhile."""
        if self.path is None:
            self._memory = {launch_id: beat for launch_id, beat in self._memory.items() if beat >= at}
        else:
            with self._trouble_told(self.path) as connection:
                connection.execute(_FORGET, (at, MAX_FORGOTTEN))

    def note_session(self, session: NotedSession) -> None:
        """A Dagster run works in this session from now on; others learn of it, should its process die."""
        if self.path is None:
            self._sessions[session.dagster_run_id, session.address] = session
        else:
            with self._trouble_told(self.path) as connection:
                connection.execute(_NOTE_SESSION, session)

    def sessions(self) -> list[NotedSession]:
        """Every session that was noted and not forgotten, the oldest first: those in use, and dead processes'."""
        if self.path is None:
            return sorted(self._sessions.values(), key=lambda session: session.at)
        with self._trouble_told(self.path) as connection:
            return [NotedSession(*row) for row in connection.execute(_READ_SESSIONS)]

    def forget_session(self, dagster_run_id: str, address: str) -> None:
        """The Dagster run is done with it, or it has been seen to. Twice is once."""
        if self.path is None:
            self._sessions.pop((dagster_run_id, address), None)
        else:
            with self._trouble_told(self.path) as connection:
                connection.execute(_FORGET_SESSION, (dagster_run_id, address))

    @contextmanager
    def _trouble_told(self, path: str) -> Iterator[sqlite3.Connection]:
        try:
            yield self._connection(path)
        except sqlite3.Error as error:
            raise StoreUnusable(url=path, why=str(error)) from error

    def _connection(self, path: str) -> sqlite3.Connection:
        if getattr(self._local, "pid", None) != os.getpid():
            connection = sqlite3.connect(path, timeout=30.0, isolation_level=None, check_same_thread=False)
            connection.execute("PRAGMA journal_mode = WAL")
            connection.execute("PRAGMA synchronous = OFF")
            connection.execute(_CREATE)
            connection.execute(_CREATE_SESSIONS)
            self._local.connection, self._local.pid = connection, os.getpid()
        found: sqlite3.Connection = self._local.connection
        return found
