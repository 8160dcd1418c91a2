"""What it costs that files arrive: from a landing folder to live lots.

    python -m bench.arrivals [--files N] [--lots N …] [--there N]

- arrival: N small Parquet files on a local disk, of several numbers of lots; one look of the watcher each, which lists,
  opens every footer, writes a manifest for each lot, and records; without the milliseconds for each lot in which Dagster
  is told of it afterwards, bounded in each look.
- nothing new: a look at the same folder afterwards, by the same watcher and by one that remembers nothing.
- there: the same for a folder with a hundred thousand files of recorded lots.

Prints Markdown, for docs/performance.md.
"""

import argparse
import os
import shutil
import tempfile
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import dagster as dg
import pandas as pd

from databuild_dagster import build_definitions, databuild_boundary
from databuild_dagster.bindings.boundaries import boundary_of
from databuild_dagster.bindings.instance import engine_for
from databuild_dagster.bindings.registration import datasets_of, register
from databuild_dagster.bindings.tuning import tune_dagster_writes
from databuild_dagster.bindings.watching import Look, Watcher
from databuild_dagster.warehouse import Warehouse

START = datetime(2013, 1, 1, tzinfo=UTC)
INTERVAL = timedelta(minutes=5)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--files", type=int, default=10_000)
    parser.add_argument("--lots", type=int, nargs="*", default=[100, 1_000, 10_000])
    parser.add_argument("--there", type=int, default=100_000)
    arguments = parser.parse_args()
    tune_dagster_writes()
    print("| files | lots | one look, seconds | of the processor | looked again | by one that remembers nothing |")
    print("|---:|---:|---:|---:|---:|---:|")
    for lots in arguments.lots:
        measure(arguments.files, lots)
    if arguments.there:
        measure(arguments.there, 1_000)


def measure(files: int, lots: int) -> None:
    """One line of the table."""
    with tempfile.TemporaryDirectory() as folder, dg.instance_for_test(temp_dir=folder) as instance:
        landing = Path(folder, "landing")
        drop(landing, files, lots)
        make = watchers(instance, landing, Path(folder, "warehouse"))
        watcher = make()
        before = time.process_time()
        arrived = seconds_of(watcher, files)
        processor = time.process_time() - before
        again = seconds_of(watcher, 0)
        anew = seconds_of(make(), 0)
    print(f"| {files:,} | {lots:,} | {arrived:.2f} | {processor:.2f} | {again:.3f} | {anew:.2f} |", flush=True)


def drop(landing: Path, files: int, lots: int) -> None:
    """Small files, written long ago."""
    landing.mkdir()
    template = landing / ".template"
    pd.DataFrame({"carrier": ["AA", "UA"] * 10, "delay": range(20)}).to_parquet(template)
    long_ago = time.time() - 3_600
    for number in range(files):
        at = START + INTERVAL * (number % lots)
        path = landing / f"flights_{at:%Y%m%dT%H%M}_{number // lots:05}.parquet"
        # Each has its own contents: copies are counted once.
        pd_bytes(path, number) if files <= 10_000 else shutil.copyfile(template, path)
        os.utime(path, (long_ago, long_ago))


def pd_bytes(path: Path, number: int) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    pq.write_table(pa.table({"carrier": ["AA", "UA"] * 10, "delay": list(range(number, number + 20))}), path)


def watchers(instance: dg.DagsterInstance, landing: Path, warehouse: Path) -> Callable[[], Watcher]:
    """Makes watchers of one boundary, each of which remembers nothing."""
    partitions = dg.TimeWindowPartitionsDefinition(
        start=START.strftime("%Y-%m-%d-%H:%M"),
        cron_schedule="*/5 * * * *",
        fmt="%Y-%m-%d-%H:%M",
        end="2014-01-01-00:00",
    )
    spec = databuild_boundary(
        "flights", partitions_def=partitions, files=f"{landing}/flights_{{time:%Y%m%dT%H%M}}_*.parquet"
    )
    repository = build_definitions([spec], location="bench").get_repository_def()
    engine = engine_for(instance)
    datasets = datasets_of(repository.asset_graph, "bench")
    register(engine, "bench", datasets)
    boundary = boundary_of(spec)
    assert boundary is not None
    return lambda: Watcher(engine, instance, datasets[0], Warehouse(str(warehouse)), boundary)


def seconds_of(watcher: Watcher, files: int) -> float:
    """Looks until all files are recorded; the seconds of it."""
    began = time.perf_counter()
    recorded = 0
    while True:
        now = time.time()
        look: Look = watcher.record(watcher.see(now), now)
        assert not look.held, next(iter(look.held.items()))
        recorded += sum(len(each.files) for each in look.recorded)
        if not look.more:
            break
    assert recorded == files, (recorded, files)
    return time.perf_counter() - began


if __name__ == "__main__":
    main()
