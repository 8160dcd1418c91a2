"""What the engine costs, against raw transactions of its database on the same disk in the same run.

    python -m bench.engine [--database sqlite|postgres] [--url URL] [--partitions N …] [--only NAME …] [--keep FOLDER] [--json]

Stores of each size are filled through the engine itself, which takes minutes for a million partitions; with `--keep` they
are there for the next time; a PostgreSQL server keeps them anyway, as databases called `databuild_bench_…`. All that
changes a store has a copy of its own. Prints Markdown; all parts together record the table `engine` or `engine-postgres`.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import NamedTuple, NoReturn

import sqlalchemy as sa

from bench.engine import bulk, clock, limits
from bench.engine.bulk import BATCH, DUE, Fresh
from bench.engine.commands import Commands, in_turns
from bench.engine.databases import Database, Postgres, Sqlite
from bench.engine.filling import SHAPE, fill, fill_singly, opened, sizes
from bench.engine.limits import Limit
from bench.engine.round_trips import Proxy
from bench.engine.writers import one_and_many
from bench.results import record
from databuild_dagster.engine.engine import Engine

WRITERS, WRITING_SECONDS = 16, 3.0
#: Refs of the log that is rebuilt event by event.
SINGLY = 25_000


class Measured(NamedTuple):
    """One row of the table."""

    what: str
    value: float
    limit: Limit
    details: str = ""


class Bench:
    """The stores, by size, and how often is measured."""

    def __init__(self, database: Database, partitions: list[int], rounds: int) -> None:
        self.database = database
        self.partitions = sorted(partitions)
        self.rounds = rounds

    @property
    def large(self) -> int:
        return self.partitions[-1]

    def store(self, partitions: int) -> str:
        """The name of a filled store, filled now if it was not yet."""
        return self._filled(f"v{SHAPE}_{partitions}", lambda engine: fill(engine, partitions))

    def singly(self) -> str:
        return self._filled(f"v{SHAPE}_singly_{SINGLY}", lambda engine: fill_singly(engine, SINGLY))

    def _filled(self, name: str, filler: Callable[[Engine], None]) -> str:
        if not self.database.has(name):
            began = time.perf_counter()
            # In a process of its own, which takes its memory and its connection with it.
            child = os.fork()
            if child == 0:
                _fill_and_leave(self.database.url(name), filler)
            if os.waitpid(child, 0)[1] != 0:
                raise SystemExit(f"bench: the store {name} could not be filled; its traceback is above.")
            self.database.kept(name)
            print(f"filled {name} in {time.perf_counter() - began:.0f} s", file=sys.stderr)
        return name


def _fill_and_leave(url: str, filler: Callable[[Engine], None]) -> NoReturn:
    code = 1
    try:
        engine = opened(url)
        filler(engine)
        # Closed, so that what was written last is not left beside the file.
        engine.store.close()
        code = 0
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(code)


def commands(bench: Bench) -> Iterator[Measured]:
    with ExitStack() as stack:
        engines = {
            size: Commands(opened(stack.enter_context(bench.database.copy(bench.store(size), f"copy_{size}"))), size)
            for size in bench.partitions
        }
        raw, seconds = in_turns(bench.database.floor(), engines, bench.rounds)
    floor = statistics.median(raw)
    medians = {
        size: {name: statistics.median(taken) for name, taken in by_name.items()} for size, by_name in seconds.items()
    }
    small, large = bench.partitions[0], bench.large
    for name, few in medians[small].items():
        many = medians[large][name]
        details = f"{few * 1e6:.0f} µs, {many * 1e6:.0f} µs, {many / floor:.1f} × raw"
        yield Measured(f"{name}: {large:,} against {small:,} partitions", many / few, limits.GROWTH, details)


def single(bench: Bench) -> Iterator[Measured]:
    """Nothing but these commands, over and over, as the floor has nothing but its one."""
    with bench.database.copy(bench.store(bench.large)) as url:
        engines = {bench.large: Commands(opened(url), bench.large)}
        raw, seconds = in_turns(bench.database.floor(), engines, 3 * bench.rounds, Commands.life)
    floor = statistics.median(raw)
    for name, taken in seconds[bench.large].items():
        median = statistics.median(taken)
        details = f"{median * 1e6:.0f} µs, raw {floor * 1e6:.1f} µs"
        yield Measured(f"{name} of one ref", median / floor, limits.SINGLE[bench.database.name], details)


def batches(bench: Bench) -> Iterator[Measured]:
    """Raw and ours in turns; rates are refs and rows per second."""
    floor = bench.database.floor()
    wants, successes, unblocking, raw = [], [], [], []
    with bench.database.copy(bench.store(bench.large)) as url:
        engine, fresh = opened(url), Fresh(20_000_000)
        for _ in range(max(bench.rounds // 25, 5)):
            raw += [floor.seconds(BATCH) for _ in range(5)]
            wants.append(bulk.want_of_a_batch(engine, fresh))
            successes.append(bulk.success_of_a_batch(engine, fresh))
            unblocking.append(bulk.success_that_unblocks(engine, fresh))
    row, want, success, unblocks = (statistics.median(item) for item in (raw, wants, successes, unblocking))
    rows = f"raw {row * 1e3:.2f} ms"
    yield Measured(
        f"want of {BATCH:,} refs, rate against raw", row / want, limits.BATCH_WANT, f"{want * 1e3:.1f} ms, {rows}"
    )
    yield Measured(
        f"success of {BATCH:,}, rate against raw",
        row / success,
        limits.BATCH_SUCCESS,
        f"{success * 1e3:.1f} ms, {rows}",
    )
    what = f"success of {BATCH:,} that unblocks {BATCH:,}, against the plain one"
    yield Measured(what, unblocks / success, limits.UNBLOCKING, f"{unblocks * 1e3:.1f} ms")


def idle(bench: Bench) -> Iterator[Measured]:
    with bench.database.copy(bench.store(bench.large)) as url:
        ticks = bulk.IdleTicks(opened(url))
        found = [ticks.tick() for _ in range(max(bench.rounds, 50))]
    state, noted, whole = (statistics.median(item) * 1e3 for item in zip(*found, strict=True))
    details = f"heartbeats {noted * 1e3:.0f} µs beside it, the whole tick {whole * 1e3:.0f} µs"
    yield Measured(f"idle tick at {bench.large:,} partitions, the state's database", state, limits.IDLE_TICK, details)


def planning(bench: Bench) -> Iterator[Measured]:
    with bench.database.copy(bench.store(bench.large)) as url:
        due = bulk.Planning(opened(url), bench.large, Fresh(30_000_000))
        seconds = statistics.median(due.seconds() for _ in range(15))
    yield Measured(f"plan of {DUE:,} due refs at {bench.large:,} partitions", seconds * 1e3, limits.PLANNING)


def cascade(bench: Bench) -> Iterator[Measured]:
    n = sizes(bench.large).cascade
    for wants, reopens in (("whose wants expired long ago", False), ("whose wants open again", True)):
        found = []
        for _ in range(3):
            with bench.database.copy(bench.store(bench.large)) as url:
                found.append(bulk.cascade_seconds(opened(url), reopens=reopens))
        taint, untaint = (statistics.median(item) for item in zip(*found, strict=True))
        what = f"taint of {n:,} instances downstream, {wants}"
        yield Measured(what, taint, limits.CASCADE, f"taking it back {untaint:.2f} s")


def rebuilding(bench: Bench) -> Iterator[Measured]:
    """Each in a process of its own, whose memory is printed."""
    found = []
    for _ in range(3):
        with bench.database.copy(bench.singly()) as url:
            found.append(bulk.in_a_process("rebuilt", url))
    events, seconds, megabytes = (statistics.median(item) for item in zip(*found, strict=True))
    yield Measured("rebuild, events of one ref", events / seconds, limits.REBUILD, f"{events:,.0f} in {seconds:.1f} s")
    yield Measured("rebuild, events of one ref: memory", megabytes, limits.REBUILD_MEMORY)


def rebuilding_large(bench: Bench) -> Iterator[Measured]:
    with bench.database.copy(bench.store(bench.large)) as url:
        events, seconds, megabytes = bulk.in_a_process("rebuilt", url)
    details = f"{events:,.0f} events of up to 10,000 refs in {seconds:.0f} s"
    yield Measured(f"rebuild of {bench.large:,} partitions: memory", megabytes, limits.REBUILD_MEMORY, details)


def writers(bench: Bench) -> Iterator[Measured]:
    with bench.database.copy(bench.store(bench.large)) as url:
        alone, together = one_and_many(url, WRITERS, WRITING_SECONDS, 20_000_000)
    rates = f"{together.commands_per_second:,.0f} and {alone:,.0f} commands/s"
    total = together.commands_per_second / alone
    yield Measured(f"{WRITERS} writing processes against one, in total", total, limits.WRITERS_TOTAL, rates)
    yield Measured("the slowest of them against the fastest", together.fairness, limits.WRITERS_FAIRNESS)
    yield Measured("the longest that one command waited", together.worst_seconds, limits.WRITERS_WAIT)


def round_trips(bench: Bench) -> Iterator[Measured]:
    """What is no server has none."""
    if bench.database.name == "sqlite":
        return
    with bench.database.copy(bench.store(bench.partitions[0])) as url:
        direct = sa.make_url(url)
        proxy = Proxy(direct.host or "localhost", direct.port or 5432)
        through = direct.set(host="127.0.0.1", port=proxy.port).render_as_string(hide_password=False)
        turns = bulk.turns_of_commands(opened(through), lambda: proxy.turns)
        proxy.close()
    for name, n in turns.items():
        yield Measured(f"{name} of one ref: round trips", n, limits.ROUND_TRIPS)


def memory(bench: Bench) -> Iterator[Measured]:
    for size in bench.partitions:
        with bench.database.copy(bench.store(size)) as url:
            (megabytes,) = bulk.in_a_process("used", url)
        yield Measured(f"a process that only uses the engine, {size:,} partitions", megabytes, limits.MEMORY)


PARTS: dict[str, Callable[[Bench], Iterator[Measured]]] = {
    "single": single,
    "commands": commands,
    "batches": batches,
    "idle": idle,
    "planning": planning,
    "cascade": cascade,
    "rebuild": rebuilding,
    "rebuild-large": rebuilding_large,
    "writers": writers,
    "round-trips": round_trips,
    "memory": memory,
}


COLUMNS = ["what", "measured", "hard", "aim", "details", "ok"]


def cells(row: Measured) -> list[str]:
    limit = row.limit
    hard, aim = (f"{limit.sign} {limit.shown(item)}" if item is not None else "" for item in (limit.hard, limit.aim))
    return [row.what, limit.shown(row.value), hard, aim, row.details, limit.verdict(row.value)]


def printed(rows: list[Measured]) -> None:
    for line in (COLUMNS, ["---"] * len(COLUMNS), *map(cells, rows)):
        print("| " + " | ".join(line) + " |")


def as_json(rows: list[Measured]) -> str:
    listed = [
        {
            "what": row.what,
            "measured": row.value,
            "unit": row.limit.unit.strip(),
            "hard": row.limit.hard,
            "aim": row.limit.aim,
            "ok": row.limit.verdict(row.value),
            "details": row.details,
        }
        for row in rows
    ]
    return json.dumps({"clock": clock.chosen(), "load": os.getloadavg(), "rows": listed}, ensure_ascii=False, indent=1)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--database", choices=("sqlite", "postgres"), default="sqlite")
    parser.add_argument("--url", help="of a PostgreSQL server on which databases may be made, postgresql+psycopg://…")
    parser.add_argument("--partitions", type=int, nargs="+", default=[10_000, 1_000_000], help="sizes of the store")
    parser.add_argument("--only", nargs="+", choices=PARTS, default=list(PARTS), metavar="NAME", help=", ".join(PARTS))
    parser.add_argument("--rounds", type=int, default=360, help="commands of each kind that are timed")
    parser.add_argument("--keep", type=Path, help="a folder for filled stores, to be used again")
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.add_argument("--clock", choices=clock.CLOCKS, default="wall", help="cpu where others keep the machine busy")
    options = parser.parse_args()
    clock.choose(options.clock)
    if options.database == "postgres" and not options.url:
        parser.error("--database postgres needs --url postgresql+psycopg://…")
    with tempfile.TemporaryDirectory(prefix="databuild-bench-", dir=options.keep) as scratch:
        keep = options.keep or Path(scratch, "kept")
        keep.mkdir(parents=True, exist_ok=True)
        database: Database = (
            Sqlite(keep, Path(scratch)) if options.database == "sqlite" else Postgres(options.url, keep, Path(scratch))
        )
        bench = Bench(database, options.partitions, options.rounds)
        rows: list[Measured] = []
        for name in options.only:
            rows += PARTS[name](bench)
            print(f"{name} measured, load {os.getloadavg()[0]:.1f}", file=sys.stderr)
    if options.only == list(PARTS):
        name, more = (
            ("engine", "") if options.database == "sqlite" else ("engine-postgres", " --database postgres --url URL")
        )
        command = f"python -m bench.engine --keep FOLDER --clock {options.clock}{more}"
        print(record(name, command, COLUMNS, list(map(cells, rows))), file=sys.stderr)
    if options.json:
        print(as_json(rows))
    else:
        printed(rows)


if __name__ == "__main__":
    main()
