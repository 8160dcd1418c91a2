"""Builders that share one PostgreSQL: what a partition costs, and what they wait for each other.

    python -m bench.builders [--builders 1 2 4 8] [--partitions N] [--each N] [--rounds N] [--paper N]

A builder is a process that works as `databuild build` does, on partitions of its own, each a frame of pandas with one row. Log and
Dagster's storage are in one PostgreSQL with its default durability. All builders start together, when each has loaded its definitions.
Each wants so many partitions (`--each`) at a time, and then the next ones.

- Processor seconds for each partition, of the builder and of the server: where the cores are the limit, these stay constant.
- The share of the builders' time in which they wait for the log's lock, of many looks at the server's sessions.
- The processor seconds with the lock, in the builder and in its session. With the time of a commit on the disk and of the round trips of
  a network they say what many builders do, with a core each (mean value analysis of one queue).

Prints Markdown, for docs/performance.md: the medians of the rounds.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

import psutil  # type: ignore[import-untyped]
import psycopg

from tests.support.postgres import PostgresServer

ROOT = Path(__file__).parents[1]
#: A command with the lock makes so many round trips (how-to/postgresql.md), each of so many seconds in one data center.
TRIPS, TRIP_SECONDS = 5, 0.0005
#: Seconds that a partition's function takes in `on_paper`; the first is what this bench measures.
OWN_WORK = (0.0, 0.1, 1.0, 10.0)
#: Writes to the disk that are timed: one is a page of the server's log.
SYNCS, PAGE = 50, b"x" * 8192
#: Seconds between two looks at the server's sessions.
LOOK_SECONDS = 0.01
#: A process that works closes its idle connections so often (store/backends/postgres.py); a little more.
REST_SECONDS = 12.0
#: The number of the server's clients, and of those that wait for the log's lock.
SESSIONS = """
SELECT count(*), count(*) FILTER (WHERE wait_event_type = 'Lock' AND wait_event = 'advisory')
FROM pg_stat_activity WHERE backend_type = 'client backend' AND pid <> pg_backend_pid()"""

DEFINITIONS = """
import dagster as dg
import pandas as pd

from databuild_dagster import BuildContext, build_definitions, databuild_asset


@databuild_asset(partitions_def=dg.StaticPartitionsDefinition([f"{number:05}" for number in range(20_000)]))
def tiny(context: BuildContext) -> pd.DataFrame:
    return pd.DataFrame({"number": [int(context.partition_key)]})


defs = build_definitions([tiny])
"""


class Part(NamedTuple):
    """What one builder did, from its first want to its last live ref."""

    seconds: float
    processor: float
    launches: int
    #: Transactions that write, and the processor seconds from having the lock to the end.
    writes: int
    holding: float


class Together(NamedTuple):
    """What builders did at the same time: seconds, transactions and launches for each partition."""

    rate: float
    builder: float
    server: float
    waiting: float
    writes: float
    launches: float
    holding: float
    peak: float
    at_rest: float
    #: Seconds that the disk needs for one commit.
    sync: float


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.builders", description=__doc__)
    parser.add_argument("--builders", type=int, nargs="*", default=[1, 2, 4, 8])
    parser.add_argument("--partitions", type=int, default=100, help="of each builder")
    parser.add_argument("--each", type=int, default=100, help="partitions that a builder wants at a time")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--paper", type=int, default=64, help="so many builders are computed")
    parser.add_argument("--build", nargs=3, type=int, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.build:
        build(*arguments.build)
        return
    found = measured(arguments.builders, arguments.partitions, arguments.each, arguments.rounds)
    print(
        "| builders | per second | builder, s | server, s | both, × 1 | wait for the lock | connections, peak | at rest |"
    )
    print("|---|---|---|---|---|---|---|---|")
    first = found[arguments.builders[0]]
    for number, done in found.items():
        ratio = (done.builder + done.server) / (first.builder + first.server)
        print(
            f"| {number} | {done.rate:.1f} | {done.builder:.3f} | {done.server:.3f} | {ratio:.2f} | {done.waiting:.1%} "
            f"| {done.peak:.0f} | {done.at_rest:.0f} |"
        )
    print(
        f"\nFor each partition: {first.launches:.3f} launches, {first.writes:.2f} transactions that write, and "
        f"{1000 * first.holding:.2f} ms of processor time with the lock. A commit on the disk: {1000 * first.sync:.2f} ms.\n"
    )
    on_paper(first, arguments.paper)


def measured(numbers: Sequence[int], n_partitions: int, n_each: int, n_rounds: int) -> dict[int, Together]:
    """In turns, so that other work on the machine slows the builders of each number alike."""
    found: dict[int, list[Together]] = {number: [] for number in numbers}
    for _ in range(n_rounds):
        for number in numbers:
            found[number].append(together(number, n_partitions, n_each))
    return {number: Together(*map(median, zip(*rounds, strict=True))) for number, rounds in found.items()}


def together(n_builders: int, n_partitions: int, n_each: int) -> Together:
    server = PostgresServer(durable=True)
    try:
        with tempfile.TemporaryDirectory(prefix="databuild-builders-") as folder:
            return _together(server, Path(folder), n_builders, n_partitions, n_each)
    finally:
        server.stop()


def _together(server: PostgresServer, folder: Path, n_builders: int, n_partitions: int, n_each: int) -> Together:
    url = server.fresh_url().replace("+psycopg:", "+psycopg2:")
    (folder / "dagster.yaml").write_text(
        f"telemetry: {{enabled: false}}\nstorage: {{postgres: {{postgres_url: '{url}'}}}}\n"
    )
    (folder / "definitions.py").write_text(DEFINITIONS)
    (folder / "workspace.yaml").write_text("load_from: [{python_file: definitions.py}]\n")
    environment = os.environ | {"DAGSTER_HOME": str(folder), "PYTHONPATH": str(ROOT)}
    builders = []
    for number in range(n_builders):
        numbers = (number * n_partitions, (number + 1) * n_partitions, n_each)
        command = [sys.executable, "-m", "bench.builders", "--build", *map(str, numbers)]
        pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
        builders.append(subprocess.Popen(command, cwd=folder, env=environment, **pipes))
        # The builders start in turn, because the first builder makes the tables.
        assert _answer(builders[-1]) == "ready"
    before = _processor_of(server)
    for builder in builders:
        _go_on(builder)
    looks, waits, peak = 0, 0, 0
    with ThreadPoolExecutor(n_builders) as threads, psycopg.connect(server.admin_url, autocommit=True) as admin:
        answers = [threads.submit(_answer, builder) for builder in builders]
        while n_at_work := sum(not answer.done() for answer in answers):
            n_sessions, n_waiting = admin.execute(SESSIONS).fetchone() or (0, 0)
            looks, waits, peak = looks + n_at_work, waits + n_waiting, max(peak, n_sessions)
            time.sleep(LOOK_SECONDS)
        after = _processor_of(server)
        parts = [Part(*json.loads(answer.result())) for answer in answers]
        time.sleep(REST_SECONDS)
        at_rest, _ = admin.execute(SESSIONS).fetchone() or (0, 0)
    for builder in builders:
        _go_on(builder)
        assert builder.wait() == 0
    total = n_builders * n_partitions
    return Together(
        rate=total / max(part.seconds for part in parts),
        builder=sum(part.processor for part in parts) / total,
        server=(after - before) / total,
        waiting=waits / looks,
        writes=sum(part.writes for part in parts) / total,
        launches=sum(part.launches for part in parts) / total,
        holding=sum(part.holding for part in parts) / total,
        peak=peak,
        at_rest=at_rest,
        sync=_sync_seconds(Path(server.folder)),
    )


def _sync_seconds(folder: Path) -> float:
    """Of one page."""
    taken = []
    with (folder / "timed").open("wb") as file:
        for _ in range(SYNCS):
            began = time.perf_counter()
            file.write(PAGE)
            file.flush()
            os.fdatasync(file.fileno())
            taken.append(time.perf_counter() - began)
    return median(taken)


def _answer(builder: subprocess.Popen[str]) -> str:
    assert builder.stdout is not None
    line = builder.stdout.readline().strip()
    assert line, f"a builder ended with {builder.wait()}"
    return line


def _go_on(builder: subprocess.Popen[str]) -> None:
    assert builder.stdin is not None
    print(file=builder.stdin, flush=True)


def _processor_of(server: PostgresServer) -> float:
    """Seconds of all of its processes, those that have ended among them."""
    postmaster = server.postmaster()
    seconds = sum(postmaster.cpu_times()[:4])
    for process in postmaster.children():
        with suppress(psutil.NoSuchProcess):
            seconds += sum(process.cpu_times()[:2])
    return float(seconds)


def build(first: int, last: int, n_each: int) -> None:
    """Be a builder: `databuild build` of some partitions at a time, in one process."""
    from bench.timed_build import Silent
    from databuild_dagster.bindings.local.building import Workshop, build_refs
    from databuild_dagster.bindings.local.tally import Tally
    from databuild_dagster.cli.definitions import load_deployed
    from databuild_dagster.cli.options import Where
    from databuild_dagster.cli.state import the_instance
    from databuild_dagster.model.commands import CreateWants
    from databuild_dagster.model.refs import Ref

    workshop = Workshop.opened(the_instance(), load_deployed(Where((), (), (), None)), at_once=1)
    queries = workshop.engine.queries
    lock = Held()
    print("ready", flush=True)
    sys.stdin.readline()
    began, processor, n_launches = time.perf_counter(), _processor_here(), 0
    for start in range(first, last, n_each):
        refs = [Ref(f"tiny@{number:05}") for number in range(start, min(start + n_each, last))]
        progress = Silent(workshop.engine, Tally(queries, refs, queries.events.head().seq))
        built = build_refs(workshop, CreateWants(wants=(tuple(refs),), comment="bench"), progress=progress)
        assert not built.not_live, built.not_live[:3]
        n_launches += built.launches
    taken = time.perf_counter() - began
    print(json.dumps(Part(taken, _processor_here() - processor, n_launches, lock.n, lock.seconds)))
    sys.stdout.flush()
    sys.stdin.readline()


def _processor_here() -> float:
    both = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(usage.ru_utime + usage.ru_stime for usage in both)


class Held:
    """From now on, the transactions of this process that write, and their processor seconds with the lock."""

    def __init__(self) -> None:
        from databuild_dagster.store.backends.postgres import PostgresDatabase

        self.n, self.seconds = 0, 0.0
        begin, end = PostgresDatabase.begin, PostgresDatabase.end

        def timed_begin(database: Any, connection: Any, *soon: Any) -> None:
            begin(database, connection, *soon)
            connection.since = _processor_of_both(connection)

        def timed_end(database: Any, connection: Any) -> None:
            since, connection.since = getattr(connection, "since", None), None
            if since is not None:
                self.n += 1
                self.seconds += _processor_of_both(connection) - since
            end(database, connection)

        PostgresDatabase.begin = timed_begin  # type: ignore[assignment,method-assign]
        PostgresDatabase.end = timed_end  # type: ignore[assignment,method-assign]


def _processor_of_both(connection: Any) -> float:
    """Of this thread, and of the server's process of this connection, which is on the same machine."""
    of_session = Path(f"/proc/{connection.raw.info.backend_pid}/schedstat").read_text().split()[0]
    return time.thread_time() + int(of_session) / 1e9


def on_paper(alone: Together, n_builders: int) -> None:
    """Builders with a core each, in one data center with the server: what they do, by the parts of one that was alone."""
    print(
        f"| {n_builders} builders, a partition's own work | per second | the lock is held | wait for the lock | cores of the server |"
    )
    print("|---|---|---|---|---|")
    holding = alone.holding + alone.writes * (alone.sync + TRIPS * TRIP_SECONDS)
    for work in OWN_WORK:
        otherwise = work + alone.builder + alone.server - alone.holding
        queue = rate = waiting = 0.0
        for number in range(1, n_builders + 1):
            in_lock = holding * (1 + queue)
            rate = number / (otherwise + in_lock)
            queue = rate * in_lock
            waiting = (in_lock - holding) / (otherwise + in_lock)
        print(f"| {work:g} s | {rate:.0f} | {rate * holding:.1%} | {waiting:.1%} | {rate * alone.server:.1f} |")


if __name__ == "__main__":
    main()
