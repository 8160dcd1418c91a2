"""The speed of `databuild log export` and `import`, from SQLite into PostgreSQL and back.

The log has four events for each ref, one ref each, which is the slowest kind to fold; it is made through the engine, which takes
minutes. Beside it stands the floor: the rows of the same log, copied with SQLite's own INSERT … SELECT.
"""

import argparse
import sqlite3
import tempfile
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

from bench.engine.filling import fill_singly, opened
from databuild_dagster.store.format import EVENTS
from databuild_dagster.store.store import open_store
from databuild_dagster.store.transfer import export_log, import_log
from tests.support.postgres import postgres_server


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--events", type=int, default=1_000_000)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="databuild-bench-") as folder:
        engine = opened(f"sqlite:///{folder}/first.db")
        engine.store.database.connection().execute("PRAGMA synchronous = OFF")
        _said("filling", lambda: fill_singly(engine, given.events // 4))
        first, second = f"{folder}/first.jsonl", f"{folder}/second.jsonl"
        postgres, back = open_store(postgres_server().fresh_url()), open_store(f"sqlite:///{folder}/back.db")
        _said("copy of the rows by SQLite (floor)", lambda: _copied(f"{folder}/first.db", f"{folder}/copy.db"))
        _said("export from SQLite", lambda: export_log(engine.store, first))
        _said("import into PostgreSQL", lambda: import_log(postgres, first))
        _said("export from PostgreSQL", lambda: export_log(postgres, second))
        _said("import into SQLite", lambda: import_log(back, second))
        same = Path(first).read_bytes() == Path(second).read_bytes()
        print(f"{Path(first).stat().st_size:,} bytes; the two files are {'the same' if same else 'NOT the same'}")


def _said(what: str, work: Callable[[], object]) -> None:
    began = time.perf_counter()
    found = work()
    print(
        f"{what:36} {time.perf_counter() - began:7.1f} s{f'  {found:,} events' if isinstance(found, int) else ''}",
        flush=True,
    )


def _copied(source: str, target: str) -> int:
    with closing(sqlite3.connect(target)) as connection:
        connection.execute("ATTACH ? AS source", (source,))
        connection.execute(f"CREATE TABLE {EVENTS} AS SELECT * FROM source.{EVENTS}")
        connection.commit()
        (n_events,) = connection.execute(f"SELECT count(*) FROM {EVENTS}").fetchone()
        return int(n_events)


if __name__ == "__main__":
    main()
