"""What many refs cost: the memory of the process that builds a batch, and reading many instances at once.

    python -m bench.batches [--refs N …] [--instances N]
    python -m bench.batches --events N

- memory: `bench.timed_build` of one batched asset of N partitions, for several N, each on a home of its own with a
  warm server; how much more each ref takes: of the Spark driver what lives on its heap afterwards (`jcmd`, of a JDK),
  of the process that builds its peak.
- reading: a scan of N instances by their manifests, against a plain `spark.read.parquet` of one folder with the very
  same files; medians of several, in turns.
- events (alone): processor time of a materialization in Dagster's SQLite storage one by one and in a batch, and of a new run's
  file by Dagster and by us; medians of several, in turns.

Prints Markdown, for docs/performance.md.
"""

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from dagster import AssetMaterialization, EventLogEntry
from pyspark.sql import SparkSession

from bench.pipeline import ROOT
from databuild_dagster.bindings.adapter.dagster_private import DagsterEvent, StepMaterializationData
from databuild_dagster.bindings.adapter.dagster_storage import EventLogStorage, SqliteEventLogStorage
from databuild_dagster.bindings.adapter.event_batches import _store_event_batch
from databuild_dagster.bindings.adapter.sqlite_tuning import _engine_for, _initdb, tune_dagster_writes
from databuild_dagster.engine.holders import new_id
from databuild_dagster.model.refs import Ref, derive_partition_uuid
from databuild_dagster.spark.frames import read_instances
from databuild_dagster.spark.server import server_statuses, stop_server
from databuild_dagster.spark.session import open_session
from databuild_dagster.spark.settings import SparkSettings
from databuild_dagster.spark.staging import publish, stage_batch, staging
from databuild_dagster.warehouse.layout import Warehouse
from databuild_dagster.warehouse.manifest import Manifest, file_paths

ROUNDS = 11
#: The first scans of each way, in which the JVM compiles its code.
WARMING = 3
MAX_SECONDS = 900
#: Refs whose memory is not counted: what the first build of a process loads.
FEW = 100

DEFINITIONS = """
import dagster as dg
from pyspark.sql import DataFrame, SparkSession

from databuild_dagster import BuildContext, build_definitions, databuild_asset

keys = dg.StaticPartitionsDefinition([f"{n:06}" for n in range(@N@)])


@databuild_asset(partitions_def=keys, batched=True, max_partitions_per_launch=@N@)
def numbers(context: BuildContext, spark: SparkSession) -> DataFrame:
    return spark.createDataFrame([(key, 1) for key in context.partition_keys], "partition_key string, n int")


defs = build_definitions([numbers])
"""


def main() -> None:
    parser = argparse.ArgumentParser(description="What many refs cost.")
    parser.add_argument("--refs", type=int, nargs="+", default=[FEW, 2_000, 4_000], help="sizes of the batch")
    parser.add_argument("--instances", type=int, default=1_000, help="instances that are read at once")
    parser.add_argument("--events", type=int, help="materializations of a batch; measures nothing else")
    options = parser.parse_args()
    if options.events:
        print("| Dagster's SQLite storage | processor ms |\n|---|---|")
        for what, milliseconds in milliseconds_of_events(options.events).items():
            print(f"| {what} | {milliseconds:.2f} |")
        return
    with tempfile.TemporaryDirectory(prefix="databuild-bench-") as name:
        home = Path(name, "home")
        home.mkdir()
        shutil.copy(ROOT / "dagster.yaml", home)
        try:
            # Twice the smallest: the first warms the server up.
            sizes = sorted(options.refs)
            megabytes_of_building(Path(name), home, sizes[0] - 1)
            memory = {n: megabytes_of_building(Path(name), home, n) for n in sizes}
            plain, ours = seconds_of_reading(Path(name), home, options.instances)
        finally:
            stop_server(home)
    print("| refs of one batch | Spark driver, MB | more per ref, KB | process that builds, MB | more per ref, KB |")
    print("|---|---|---|---|---|")
    first = min(memory)
    for n, megabytes in memory.items():
        cells = [f"{n:,}"]
        for mine, of_first in zip(megabytes, memory[first], strict=True):
            cells += [f"{mine:.0f}", "" if n == first else f"{(mine - of_first) * 1024 / (n - first):.1f}"]
        print(f"| {' | '.join(cells)} |")
    print(f"\n| a scan of {options.instances:,} files | seconds |\n|---|---|")
    print(f"| plain PySpark, by folder | {plain:.2f} |")
    print(f"| by manifests | {ours:.2f} |")


def milliseconds_of_events(n: int) -> dict[str, float]:
    """Medians of each way to store n materializations, for one of them, and of each way to make a run's file."""
    tune_dagster_writes()
    found: dict[str, list[float]] = {}
    with tempfile.TemporaryDirectory(prefix="databuild-bench-") as folder:
        store = SqliteEventLogStorage(folder)
        for _ in range(ROUNDS):
            for what, (times, work) in _ways(store, n).items():
                began = time.process_time()
                work()
                found.setdefault(what, []).append((time.process_time() - began) * 1000 / times)
    return {what: statistics.median(milliseconds) for what, milliseconds in found.items()}


def _ways(store: SqliteEventLogStorage, n: int) -> dict[str, tuple[int, Callable[[], object]]]:
    """By what is made, the number of times, and the work, on the files of two new runs."""
    by_dagster, ours = new_id(), new_id()
    first, second = _events(ours, n), _events(ours, n)
    engine = _engine_for(store.conn_string_for_shard(by_dagster))
    return {
        "a new run's file, by Dagster": (1, lambda: _initdb(store, engine)),
        "a new run's file, like the index": (1, lambda: store.get_logs_for_run(ours)),
        "a materialization, one by one": (n, lambda: EventLogStorage.store_event_batch(store, first)),
        "a materialization, in a batch": (n, lambda: _store_event_batch(store, second)),
    }


def _events(run_id: str, n: int) -> list[EventLogEntry]:
    entries = []
    for number in range(n):
        materialization = AssetMaterialization(
            "numbers",
            partition=f"{number:06}",
            metadata={"rows": number, "instance": new_id(), "wants": [new_id()]},
            tags={"dagster/data_version": new_id(), "dagster/code_version": "1"},
        )
        data = StepMaterializationData(materialization)
        event = DagsterEvent("ASSET_MATERIALIZATION", "job", event_specific_data=data, step_key="numbers")
        entries.append(EventLogEntry(None, 10, "", run_id, time.time(), "numbers", "job", event))  # type: ignore[no-untyped-call]
    return entries


def megabytes_of_building(folder: Path, home: Path, n: int) -> tuple[float, float]:
    """What lives on the driver's heap after n refs were built in one batch, and the peak of the process that did it."""
    project = folder / f"project-{n}"
    project.mkdir()
    (project / "definitions.py").write_text(DEFINITIONS.replace("@N@", str(n)))
    (project / "workspace.yaml").write_text("load_from:\n  - python_file: definitions.py\n")
    for path in home.iterdir():
        if path.name not in ("spark", "dagster.yaml"):
            shutil.rmtree(path) if path.is_dir() else path.unlink()
    done = subprocess.run(
        [sys.executable, "-m", "bench.timed_build", *(Ref(f"numbers@{key:06}") for key in range(n))],
        cwd=project,
        env=os.environ | {"DAGSTER_HOME": str(home), "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=MAX_SECONDS,
        check=False,
    )
    if done.returncode:
        raise RuntimeError(f"building {n} refs failed:\n{done.stderr[-4000:]}")
    return live_heap(home), float(json.loads(done.stdout.splitlines()[-1])["peak_megabytes"])


def live_heap(home: Path) -> float:
    """Megabytes on the heap of the home's Spark server that are in use; counting them collects the garbage first."""
    status = next(iter(server_statuses(home)), None)
    assert status is not None
    command = ["jcmd", str(status.pid), "GC.class_histogram"]
    answer = subprocess.run(command, capture_output=True, text=True, timeout=MAX_SECONDS, check=True).stdout
    total = next(line for line in reversed(answer.splitlines()) if line.startswith("Total"))
    return int(total.split()[2]) / 1024 / 1024


def seconds_of_reading(folder: Path, home: Path, n: int) -> tuple[float, float]:
    """Medians of a scan by folder, and of one by manifests."""
    spark = open_session(SparkSettings(home=home))
    warehouse = Warehouse(str(folder / "warehouse"))
    manifests = instances(spark, warehouse, n)
    flat = folder / "flat"
    flat.mkdir()
    for number, path in enumerate(path for manifest in manifests for path in file_paths(warehouse, manifest)):
        os.link(path, flat / f"part-{number:05}.parquet")
    ways: dict[str, Callable[[], int]] = {
        "plain": lambda: spark.read.parquet(str(flat)).groupBy().sum("n").count(),
        "ours": lambda: read_instances(spark, warehouse, manifests).groupBy().sum("n").count(),
    }
    seconds: dict[str, list[float]] = {name: [] for name in ways}
    for number in range(WARMING + ROUNDS):
        for name, read in ways.items():
            began = time.perf_counter()
            read()
            if number >= WARMING:
                seconds[name].append(time.perf_counter() - began)
    return statistics.median(seconds["plain"]), statistics.median(seconds["ours"])


def instances(spark: SparkSession, warehouse: Warehouse, n: int) -> list[Manifest]:
    """n instances of 1,000 rows, written as one batch."""
    keys = [f"{number:06}" for number in range(n)]
    frame = spark.range(n * 1_000).selectExpr("format_string('%06d', id div 1000) AS partition_key", "id AS n")
    with staging(warehouse, "bench") as folder:
        staged = stage_batch(frame, folder, asset="numbers", keys=keys)
        return [
            publish(
                staged[key],
                warehouse,
                ref=Ref(f"numbers@{key}"),
                uuid=derive_partition_uuid(job_run, Ref(f"numbers@{key}")),
                job_run=job_run,
                inputs={},
            )
            for key in keys
            if (job_run := new_id())
        ]


if __name__ == "__main__":
    main()
