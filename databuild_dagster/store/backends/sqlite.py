"""The build state in a SQLite file.

WAL, so that readers never wait; a single writer at a time behind a fair kernel lock; a connection per thread, and a new connection after a
fork. An error of the disk becomes `StoreUnusable`.
"""

import fcntl
import os
import shlex
import socket
import sqlite3
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, closing, contextmanager, suppress
from operator import attrgetter
from pathlib import Path
from typing import Any, NoReturn

import msgspec

from databuild_dagster.model.states import InstanceState, JobRunState, WantState
from databuild_dagster.model.wording import one_line
from databuild_dagster.store.backends.base import Connection, Database, Keys, Question
from databuild_dagster.store.backends.heartbeats import FileAside
from databuild_dagster.store.backends.sqlite_file import AtEnd, WriteLock, connected, is_read_as_it_is
from databuild_dagster.store.errors import (
    BackupRefused,
    NetworkFileSystem,
    NoDatabase,
    NotOneFile,
    StoreDamaged,
    StoreLocked,
    StoreReplaced,
    StoreUnusable,
)
from databuild_dagster.store.format import EVENTS, META, PLACE

_PRAGMAS = (
    "PRAGMA wal_autocheckpoint = 4000",
    "PRAGMA cache_size = -16000",
    "PRAGMA foreign_keys = OFF",
)

#: Gives the containers of a host, which share the file, the same name.
HOST_VARIABLE = "DATABUILD_HOST"
#: The place that a backup has until it takes over.
_A_BACKUP = "a backup"


def this_host() -> str:
    """The name of this host, which its containers may share."""
    return os.environ.get(HOST_VARIABLE) or socket.gethostname()


# A state is stored as its text. Without an adapter sqlite3 searches for one with every state.
for _states in (InstanceState, JobRunState, WantState):
    sqlite3.register_adapter(_states, attrgetter("_value_"))

_to_json = msgspec.json.Encoder().encode
sqlite3.register_adapter(Keys, lambda keys: _to_json(keys).decode())


class SqliteDatabase(Database):
    """A file, or, without a name, a database of this process alone."""

    dialect = "sqlite"
    errors = (sqlite3.Error,)

    def __init__(self, url: str, path: str) -> None:
        self.url = self.place = url
        self.path = os.path.abspath(path) if path not in ("", ":memory:") else None
        self.is_private = self.path is None
        self._local = threading.local()
        self._shared: sqlite3.Connection | None = None
        #: The file that the first connection opened.
        self._opened: tuple[int, ...] | None = None
        self._aside = FileAside(None if self.path is None else f"{self.path}.heartbeats")
        self._lock = WriteLock(None if self.path is None else f"{self.path}.lock")
        if self.path is not None:
            try:
                Path(self.path).parent.mkdir(parents=True, exist_ok=True)
            except OSError as error:
                self.raise_trouble(error)

    def make_room(self) -> None:
        self._lock.give_back_reserve()

    def check_place(self) -> None:
        if self.path is not None and (kind := network_file_system_of(os.path.dirname(self.path))) is not None:
            raise NetworkFileSystem(url=self.url, kind=kind)

    def connection(self) -> sqlite3.Connection:
        if self.path is None:
            if self._shared is None:
                self._shared = _connect(":memory:")
            return self._shared
        if getattr(self._local, "pid", None) != os.getpid():
            if self._opened is not None:
                # SQLite would write the write-ahead log of the moved file into its successor.
                self._check_file()
            is_at_rest = is_read_as_it_is(self.path)
            self._local.connection = _connect(self.path)
            self._local.at_rest = _facts_of(self.path, at_rest=True) if is_at_rest else None
            self._local.at_end = AtEnd(self._local.connection.close)
            self._local.pid = os.getpid()
            self._check_file()
        connection: sqlite3.Connection = self._local.connection
        return connection

    def _check_file(self) -> None:
        """Raise `StoreReplaced` if the path has another file than the open file: what is written to the open file would be lost."""
        if self.path is None:
            return
        found = _facts_of(self.path)
        if self._opened is None:
            self._opened = found
        elif found != self._opened:
            raise StoreReplaced(url=self.url)

    def _check_rest(self) -> None:
        """Raise `StoreReplaced` if the file that this thread reads without a lock was written, also in place of damage it met."""
        if self.path is not None and self._local.at_rest not in (None, _facts_of(self.path, at_rest=True)):
            raise StoreReplaced(url=self.url)

    def whereabouts(self, connection: Connection) -> str | None:
        """Not the device, which a restart of the machine may change."""
        if self.path is None:
            return None
        return f"inode {os.stat(self.path).st_ino} on {this_host()}"

    def has_table(self, connection: Connection, name: str) -> bool:
        return connection.execute("SELECT 1 FROM sqlite_master WHERE name = ?", (name,)).fetchone() is not None

    def begin(self, connection: Connection, *soon: Question) -> None:
        try:
            self._lock.acquire()
            connection.execute("BEGIN IMMEDIATE")
            self._check_file()
        except BaseException:
            # An interrupt is raised when its call has returned: the transaction may have begun.
            self.end(connection)
            raise

    def commit(self, connection: Connection) -> None:
        connection.execute("COMMIT")

    def end(self, connection: Connection) -> None:
        try:
            self._undo(connection)
        finally:
            self._lock.release()

    def _undo(self, connection: Connection) -> None:
        """A connection that cannot roll back would show uncommitted changes, so it is closed."""
        try:
            if connection.in_transaction:
                connection.execute("ROLLBACK")
        except sqlite3.Error:
            self.close()

    @contextmanager
    def looking(self) -> Iterator[Connection]:
        connection = self.connection()
        if self.path is None:
            self._lock.acquire()
            try:
                yield connection
            finally:
                self._lock.release()
            return
        if connection.in_transaction:
            yield connection
            return
        try:
            connection.execute("BEGIN")
            self._check_file()
            try:
                yield connection
            finally:
                self._check_rest()
        finally:
            self._undo(connection)

    def ask(self, sql: str, parameters: Sequence[Any] | Mapping[str, Any]) -> list[Any]:
        if self.path is not None:
            connection = self.connection()
            try:
                return connection.execute(sql, parameters).fetchall()
            finally:
                self._check_rest()
        self._lock.acquire()
        try:
            return self.connection().execute(sql, parameters).fetchall()
        finally:
            self._lock.release()

    def aside(self) -> AbstractContextManager[Connection]:
        return self._aside.aside()

    def raise_trouble(self, error: BaseException) -> NoReturn:
        if _is_damage(error):
            file = shlex.quote(self.path or "")
            restore = f"rm -f {file}-wal {file}-shm; cp BACKUP {file}"
            kind = NoDatabase if _code_of(error) == sqlite3.SQLITE_NOTADB else StoreDamaged
            raise kind(url=self.url, path=self.path, restore=restore, why=one_line(error)) from error
        if isinstance(error, sqlite3.DatabaseError) and not isinstance(error, sqlite3.IntegrityError):
            unusable = StoreLocked if _code_of(error) == sqlite3.SQLITE_BUSY else StoreUnusable
            raise unusable(url=self.url, why=str(error)) from error
        folder = os.path.dirname(self.path or "")
        place = str(error.filename) if isinstance(error, OSError) else ""
        # In the folder, or in one above it that could not be made.
        if isinstance(error, OSError) and place and folder and (place.startswith(folder) or folder.startswith(place)):
            raise StoreUnusable(url=self.url, why=f"{error.strerror} ({error.filename})") from error
        raise error

    def parts(self, connection: Connection) -> dict[tuple[str, str], str]:
        found = connection.execute("SELECT type, name, sql FROM sqlite_master")
        return {(kind, name): sql or "" for kind, name, sql in found}

    def others(self, connection: Connection) -> list[str]:
        """The tables: a file serves a single program."""
        return [name for kind, name in self.parts(connection) if kind == "table"]

    def columns(self, connection: Connection, table: str) -> set[str]:
        return {name for (name,) in connection.execute("SELECT name FROM pragma_table_info(?)", (table,))}

    def damage(self, connection: Connection, most: int) -> list[str]:
        return [str(fault) for (fault,) in connection.execute(f"PRAGMA integrity_check({most})") if fault != "ok"]

    @contextmanager
    def alone(self, name: str) -> Iterator[bool]:
        if self.path is None:
            yield True
            return
        with open(f"{self.path}.{name}", "a") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                yield False
                return
            yield True

    def backup(self, path: str) -> int:
        if self.path is None:
            raise NotOneFile(url=self.place)
        try:
            os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
        except OSError as error:
            raise BackupRefused(path=path, why=error.strerror) from None
        try:
            # Not this thread's connection: from one that writes, SQLite would wait for the end of its transaction.
            with closing(_connect(self.path)) as ours, closing(sqlite3.connect(path)) as copy:
                # All pages in one step: a step reads one state of a WAL database, and holds up no writer.
                ours.backup(copy)
                # A restored copy is not the original, even where it has the original's inode.
                copy.execute(f"UPDATE {META} SET value = ? WHERE key = ?", (_A_BACKUP, PLACE))
                copy.commit()
                (n_events,) = copy.execute(f"SELECT count(*) FROM {EVENTS}").fetchone()
                return int(n_events)
        except BaseException as error:
            os.unlink(path)
            self.raise_trouble(error)

    def sync(self) -> None:
        with suppress(FileNotFoundError), open(f"{self.path}-wal", "rb") as file:
            os.fsync(file.fileno())

    def close(self) -> None:
        """Close this thread's connection."""
        if self._shared is not None:
            self._shared.close()
            self._shared = None
        elif getattr(self._local, "pid", None) == os.getpid():
            self._local.connection.close()
            self._local.pid = None


def _facts_of(path: str, *, at_rest: bool = False) -> tuple[int, ...]:
    """The facts that tell a file from its successor at the same path; no facts for a file that is gone.

    SQLite reads a file at rest without a lock, so a change of it counts as a new file.
    """
    try:
        found = os.stat(path)
    except OSError:
        return ()
    facts = found.st_dev, found.st_ino
    return (*facts, found.st_mtime_ns, found.st_size, os.path.exists(f"{path}-wal")) if at_rest else facts


def _is_damage(error: BaseException) -> bool:
    """The file has bytes that SQLite did not write. Python's module has no code for a text that is not UTF-8."""
    if isinstance(error, UnicodeDecodeError):
        return True
    is_of_file = _code_of(error) in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)
    return is_of_file or (isinstance(error, sqlite3.OperationalError) and "Could not decode to UTF-8" in str(error))


def _code_of(error: BaseException) -> int:
    """SQLite's primary code of an error; 0 without a code."""
    return (getattr(error, "sqlite_errorcode", None) or 0) & 0xFF


def _connect(path: str) -> sqlite3.Connection:
    # A big statement cache, because the hot statements are few and long.
    connection = connected(path, cached_statements=512)
    for pragma in _PRAGMAS:
        connection.execute(pragma)
    durability = "FULL" if os.environ.get("DATABUILD_SQLITE_SYNCHRONOUS", "").upper() == "FULL" else "NORMAL"
    connection.execute(f"PRAGMA synchronous = {durability}")
    return connection


_FUSE = ("ceph", "cephfs", "gcsfuse", "glusterfs", "goofys", "juicefs", "mount-s3", "rclone", "s3fs", "sshfs")
_SHARES = ("9p", "afs", "cifs", "nfs", "nfs4", "smb3", "smbfs")
_CLUSTERS = ("beegfs", "ceph", "gfs2", "glusterfs", "gpfs", "lustre", "ocfs2")
#: Linux's names of the types whose files several machines see.
NETWORK_FILE_SYSTEMS = frozenset((*_SHARES, *_CLUSTERS, *(f"fuse.{name}" for name in _FUSE)))

#: The mounts of this process, by the kernel.
MOUNTS = Path("/proc/self/mounts")


def network_file_system_of(folder: str, mounts: Path | None = None) -> str | None:
    """The type of a folder's network file system; None on a disk of this machine, or where the mounts cannot be read.

    SQLite's locks and shared memory hold on a disk of the machine only.
    """
    try:
        listed = (mounts or MOUNTS).read_text(errors="surrogateescape")
    except OSError:
        return None
    real = os.path.realpath(folder)
    found, kind = "", None
    for line in listed.splitlines():
        fields = line.split(" ")
        if len(fields) < 3:
            continue
        point = _unescaped(fields[1])
        # The last mount on a place hides those before it.
        if len(point) >= len(found) and (real == point or real.startswith(point.rstrip("/") + "/")):
            found, kind = point, fields[2]
    return kind if kind in NETWORK_FILE_SYSTEMS else None


def _unescaped(text: str) -> str:
    """A path without the octal numbers that the kernel writes for blanks."""
    for code, sign in (("\\040", " "), ("\\011", "\t"), ("\\012", "\n"), ("\\134", "\\")):
        text = text.replace(code, sign)
    return text
