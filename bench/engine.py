"""What one command costs, against a raw one-row SQLite transaction on the same disk in the same run.

    python -m bench.engine [--rounds N] [--partitions N …]

A want, a buffer and a success of one ref, at a small and at a large number of partitions; the memory of a
process that only uses the engine. Raw transactions and commands at each size take turns in short blocks, so
that whatever else the machine does meets all of them. Prints Markdown, for docs/performance.md.
"""

from __future__ import annotations

import argparse
import resource
import sqlite3
import statistics
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from pathlib import Path

from databuild_dagster.engine import Engine, new_id
from databuild_dagster.model.commands import (
    BufferLaunch,
    Command,
    CreateWants,
    RegisterDatasets,
    StartLaunch,
    SucceedJobRuns,
)
from databuild_dagster.model.datasets import DatasetSpec, InputSpec
from databuild_dagster.model.events import BufferedRun, ManifestFact, OutputFact, RunSuccess
from databuild_dagster.store import open_store

#: Refs of one command while the store is filled.
BULK = 1000
#: Rounds before it is somebody else's turn, and how many of them warm up and are not counted.
BLOCK, WARM_UP = 50, 5
MANIFEST = ManifestFact("complete", "/warehouse/a/data/instance=x/manifest.json", 1, 1000, 10_000)


class AnyPartition:
    """A catalog in which every key exists and nothing has inputs."""

    def why_not(self, dataset: DatasetSpec, partition_key: str | None) -> str | None:
        return None

    def inputs(self, dataset: DatasetSpec, partition_key: str | None) -> tuple[str, ...]:
        return ()

    def launchable(
        self, dataset: DatasetSpec, partition_keys: tuple[str | None, ...], most: int
    ) -> tuple[tuple[str | None, ...], ...]:
        return (partition_keys,)

    def follows_key(self, dataset: DatasetSpec, spec: InputSpec) -> bool:
        return True


def raw_transactions(folder: Path, rounds: int) -> list[float]:
    """Seconds of single-row transactions, with the same settings of SQLite as ours."""
    connection = sqlite3.connect(folder / "raw.db", isolation_level=None)
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("PRAGMA synchronous = NORMAL")
    connection.execute("CREATE TABLE IF NOT EXISTS rows (id INTEGER PRIMARY KEY, a TEXT, b TEXT)")
    seconds = []
    for _ in range(rounds):
        began = time.perf_counter()
        connection.execute("BEGIN IMMEDIATE")
        connection.execute("INSERT INTO rows (a, b) VALUES (?, ?)", ("x" * 100, "y" * 100))
        connection.execute("COMMIT")
        seconds.append(time.perf_counter() - began)
    connection.close()
    return seconds


def commands(engine: Engine, first: int, rounds: int) -> dict[str, list[float]]:
    """Seconds of each command in the life of one ref, for refs that are new."""
    seconds: dict[str, list[float]] = {"want": [], "buffer": [], "start": [], "success": []}
    for number in range(first, first + rounds):
        ref, job_run, launch = f"a@{number:08}", new_id(), new_id()
        run = BufferedRun(job_run, (ref,), f"{number:08}")
        life: dict[str, Command] = {
            "want": CreateWants(wants=((ref,),)),
            "buffer": BufferLaunch(launch_id=launch, job="a", location="bench", owner="bench", runs=(run,)),
            "start": StartLaunch(launch_id=launch, dagster_run_id="bench", holder="bench"),
            "success": SucceedJobRuns(runs=(RunSuccess(job_run, (OutputFact(ref=ref, manifest=MANIFEST),)),)),
        }
        for name, command in life.items():
            began = time.perf_counter()
            engine.handle(command)
            seconds[name].append(time.perf_counter() - began)
    return seconds


def fill(engine: Engine, partitions: int) -> None:
    """Bring that many partitions to life, in bulk."""
    for first in range(0, partitions, BULK):
        refs = [f"a@{number:08}" for number in range(first, min(first + BULK, partitions))]
        engine.handle(CreateWants(wants=tuple((ref,) for ref in refs)))
        runs = tuple(BufferedRun(new_id(), (ref,), ref[2:]) for ref in refs)
        launch = new_id()
        engine.handle(BufferLaunch(launch_id=launch, job="a", location="bench", owner="bench", runs=runs))
        engine.handle(StartLaunch(launch_id=launch, dagster_run_id="bench", holder="bench"))
        outputs = (RunSuccess(run.job_run_id, (OutputFact(ref=run.refs[0], manifest=MANIFEST),)) for run in runs)
        engine.handle(SucceedJobRuns(runs=tuple(outputs)))


def opened(folder: Path) -> Engine:
    engine = Engine(open_store(f"sqlite:///{folder}/databuild.db"), AnyPartition())
    engine.handle(RegisterDatasets(location="bench", datasets=(DatasetSpec("a", "a", "bench"),)))
    return engine


def memory_of_engine() -> float:
    """Megabytes of a process of its own that uses the engine once."""
    code = (
        "import tempfile, pathlib, resource; from bench.engine import opened, commands\n"
        "with tempfile.TemporaryDirectory() as folder:\n"
        "    commands(opened(pathlib.Path(folder)), 0, 10)\n"
        "    print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024)"
    )
    return float(subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout)


def measured(sizes: list[int], rounds: int) -> tuple[list[float], dict[int, dict[str, list[float]]]]:
    """Seconds of raw transactions, and of each command at each number of partitions."""
    raw: list[float] = []
    timed: dict[int, dict[str, list[float]]] = {size: defaultdict(list) for size in sizes}
    with tempfile.TemporaryDirectory(prefix="databuild-bench-") as name:
        engines = {}
        for size in timed:
            Path(name, str(size)).mkdir()
            engines[size] = opened(Path(name, str(size)))
            fill(engines[size], size)
        for first in range(0, rounds, BLOCK):
            raw += raw_transactions(Path(name), BLOCK)[WARM_UP:]
            for size, engine in engines.items():
                for command, seconds in commands(engine, size + first, BLOCK).items():
                    timed[size][command] += seconds[WARM_UP:]
    return raw, timed


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=1000, help="commands of each kind that are timed")
    parser.add_argument("--partitions", type=int, nargs="+", default=[1_000, 100_000], help="sizes of the store")
    options = parser.parse_args()
    raw, timed = measured(options.partitions, options.rounds)
    floor = statistics.median(raw)
    medians = {
        partitions: {name: statistics.median(seconds) for name, seconds in of_commands.items()}
        for partitions, of_commands in timed.items()
    }
    print(f"One-row SQLite transaction: {floor * 1e6:.0f} µs (median of {len(raw)}).\n")
    small, large = options.partitions[0], options.partitions[-1]
    print(f"| command | at {small:,} partitions | × raw | at {large:,} | × raw | {large:,} / {small:,} |")
    print("|---|---|---|---|---|---|")
    for name in medians[small]:
        few, many = medians[small][name], medians[large][name]
        cells = (f"{few * 1e6:.0f} µs", f"{few / floor:.1f}", f"{many * 1e6:.0f} µs", f"{many / floor:.1f}")
        print(f"| {name} | {' | '.join(cells)} | {many / few:.2f} |")
    print(f"\nA process that only uses the engine: {memory_of_engine():.0f} MB.")
    megabytes = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(f"This process, {large:,} partitions filled: {megabytes:.0f} MB.")


if __name__ == "__main__":
    main()
