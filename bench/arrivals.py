"""What it costs that files arrive: from a landing folder to live lots, and from there to what subscribes to them.

    python -m bench.arrivals [--files N] [--lots N …] [--there N] [--launched N …]

- arrival: N small Parquet files on a local disk, of several numbers of lots; one look of the watcher each, which lists,
  opens every footer, writes a manifest for each lot, and records; without the milliseconds for each lot in which Dagster
  gets it afterwards, bounded in each look.
- nothing new: a look at the same folder afterwards, by the same watcher and by one that remembers nothing.
- there: the same for a folder with a hundred thousand files of recorded lots.
- launched: so many lots arrive in one look, and an asset subscribes to them: how many of its partitions the next tick
  launches, and how long it takes; what the launch does in processes of its own is not in it.

Prints Markdown, for docs/performance.md.
"""

import argparse
import os
import shutil
import tempfile
import time
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path

import dagster as dg
import pandas as pd

from databuild_dagster import build_definitions, databuild_asset, databuild_boundary
from databuild_dagster.bindings.adapter.sqlite_tuning import tune_dagster_writes
from databuild_dagster.bindings.building.deployment import deployment_of_repository
from databuild_dagster.bindings.claims.launcher import OrderCollector
from databuild_dagster.bindings.orchestration.orchestrator import run_tick
from databuild_dagster.bindings.registry.instance import engine_for
from databuild_dagster.bindings.registry.registration import datasets_of
from databuild_dagster.engine.registering import register
from databuild_dagster.features.lots.arrivals.arrival_sensors import look_once
from databuild_dagster.features.lots.arrivals.boundaries import boundary_of
from databuild_dagster.features.lots.arrivals.watcher import Look, Watcher
from databuild_dagster.warehouse.layout import Warehouse

START = datetime(2013, 1, 1, tzinfo=UTC)
INTERVAL = timedelta(minutes=5)
YEAR = dg.TimeWindowPartitionsDefinition(
    start="2013-01-01-00:00", end="2014-01-01-00:00", cron_schedule="*/5 * * * *", fmt="%Y-%m-%d-%H:%M"
)
LOTS = (100, 1_000, 10_000)
LAUNCHED = (1, 100)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--files", type=int, default=10_000)
    parser.add_argument("--lots", type=int, nargs="*", default=LOTS)
    parser.add_argument("--there", type=int, default=100_000)
    parser.add_argument("--launched", type=int, nargs="*", default=LAUNCHED)
    arguments = parser.parse_args()
    arrivals(arguments.files, arguments.lots, arguments.there)
    launches(arguments.launched)


def arrivals(files: int = 10_000, lots: Sequence[int] = LOTS, there: int = 0) -> None:
    """The table of arrivals; `there` is of how many files the last line is."""
    tune_dagster_writes()
    print("\n| files | lots | one look, seconds | of the processor | looked again | by one that remembers nothing |")
    print("|---:|---:|---:|---:|---:|---:|")
    for n in lots:
        measure(files, n)
    if there:
        measure(there, 1_000)


def launches(lots: Sequence[int] = LAUNCHED) -> None:
    """The table of what the tick after an arrival does."""
    tune_dagster_writes()
    print("\n| lots arrived in one look | launched by the next tick | the look, s | that tick, s | of the processor |")
    print("|---:|---:|---:|---:|---:|")
    for n in lots:
        with tempfile.TemporaryDirectory() as folder, dg.instance_for_test(temp_dir=folder) as instance:
            _launch(instance, Path(folder, "landing"), n)


def _launch(instance: dg.DagsterInstance, landing: Path, n: int) -> None:
    drop(landing, n, n)
    flights = boundary_over(landing)

    @databuild_asset(partitions_def=YEAR, subscribe="flights")
    def delays(flights: pd.DataFrame) -> pd.DataFrame:
        return flights

    repository = build_definitions([flights, delays], location="bench").get_repository_def()
    deployment, boundary = deployment_of_repository(repository), boundary_of(flights)
    assert deployment is not None
    assert boundary is not None
    orders = OrderCollector(instance)
    run_tick(instance, repository, deployment, orders)
    began = time.perf_counter()
    look_once(instance, repository, deployment, "flights", boundary)
    looked, busy = time.perf_counter(), time.process_time()
    run_tick(instance, repository, deployment, orders)
    ticked, busy = time.perf_counter() - looked, time.process_time() - busy
    launched = sum(len(order.partition_keys) for order in orders.take_orders())
    print(f"| {n:,} | {launched:,} | {looked - began:.2f} | {ticked:.2f} | {busy:.2f} |", flush=True)


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
        renewed = seconds_of(make(), 0)
    print(f"| {files:,} | {lots:,} | {arrived:.2f} | {processor:.2f} | {again:.3f} | {renewed:.2f} |", flush=True)


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
    spec = boundary_over(landing)
    repository = build_definitions([spec], location="bench").get_repository_def()
    engine = engine_for(instance)
    datasets = datasets_of(repository.asset_graph, "bench")
    register(engine, "bench", datasets)
    boundary = boundary_of(spec)
    assert boundary is not None
    return lambda: Watcher(engine, instance, datasets[0], Warehouse(str(warehouse)), boundary)


def boundary_over(landing: Path) -> dg.AssetSpec:
    """Of 5-minute lots, by the time in the names of files."""
    files = f"{landing}/flights_{{time:%Y%m%dT%H%M}}_*.parquet"
    return databuild_boundary("flights", partitions_def=YEAR, files=files)


def seconds_of(watcher: Watcher, files: int) -> float:
    """Looks until all files are recorded; the seconds of it."""
    began = time.perf_counter()
    recorded = 0
    while True:
        now = time.time()
        look: Look = watcher.record(watcher.see(now), now)
        assert not look.held, next(iter(look.held.items()))
        recorded += sum(len(item.files) for item in look.recorded)
        if not look.more:
            break
    assert recorded == files, (recorded, files)
    return time.perf_counter() - began


if __name__ == "__main__":
    main()
