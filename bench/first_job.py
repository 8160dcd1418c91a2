"""How long a want waits for its first Spark job: beside `databuild dev`, whose Spark server is warm.

    python -m bench.first_job [--rounds N]

Each want is a new partition. Seconds from the record of the want until a tick has launched it, from there until its function is called
in a process of its own, and from there until its first Spark job has ended. The floor is a plain asset of the same file: from the button
Materialize until its function is called. Wall time, so on a quiet machine. Records the table `first-job`.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from collections.abc import Callable
from datetime import date, timedelta
from pathlib import Path

from bench.cli import databuild
from bench.results import record
from databuild_dagster.data.home import sqlite_url
from databuild_dagster.model.refs import Ref, partition_key_of
from databuild_dagster.model.states import InstanceState
from databuild_dagster.store.queries.queries import Queries
from databuild_dagster.store.store import open_store
from tests.support.free_port import free_port
from tests.support.materialize_button import LAUNCH, launch_params
from tests.support.processes import kill_processes_of, start_server

DEFINITIONS = """
import json
import os
import time
from pathlib import Path

import dagster as dg
from pyspark.sql import DataFrame, SparkSession

from databuild_dagster import BuildContext, build_definitions, databuild_asset


@databuild_asset(partitions_def=dg.DailyPartitionsDefinition("2024-01-01", end_date="2025-01-01"))
def day(context: BuildContext, spark: SparkSession) -> DataFrame:
    called = time.time()
    spark.range(1).count()
    Path(os.environ["BENCH_TIMES"], context.partition_key).write_text(json.dumps([called, time.time()]))
    return spark.range(3)


@dg.asset
def plain() -> None:
    Path(os.environ["BENCH_TIMES"], "plain").write_text(str(time.time()))


defs = build_definitions([day, plain])
"""
FIRST = date(2024, 1, 1)
#: More than a start of Dagster's services and of Spark takes.
MAX_SECONDS = 300.0
STEPS = (
    "a want, until a tick launches it; Dagster evaluates sensors every 5 s",
    "from there, until its function is called",
    "from there, until its first Spark job has ended",
    "the button Materialize of a plain asset, until its function is called (the floor)",
)


def main() -> None:
    parser = argparse.ArgumentParser(description="From a want to its first Spark job.")
    parser.add_argument("--rounds", type=int, default=10)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="databuild-bench-") as name:
        found = measured(Path(name), options.rounds)
    columns = ["seconds", "median", "least", "most"]
    rows = [
        [step, *(f"{part(values):.1f}" for part in (statistics.median, min, max))]
        for step, values in zip(STEPS, zip(*found, strict=True), strict=True)
    ]
    for row in rows:
        print(row)
    print(record("first-job", f"python -m bench.first_job --rounds {options.rounds}", columns, rows, raw=found))


def measured(folder: Path, rounds: int) -> list[tuple[float, ...]]:
    """By want, the seconds of `STEPS`. The want before the first one has warmed all up."""
    home, times = folder / "home", folder / "times"
    for made in (home, times):
        made.mkdir()
    (home / "dagster.yaml").write_text("telemetry: {enabled: false}\n")
    (folder / "definitions.py").write_text(DEFINITIONS)
    (folder / "workspace.yaml").write_text("load_from:\n  - python_file: definitions.py\n")
    environment = os.environ | {"DAGSTER_HOME": str(home), "BENCH_TIMES": str(times)}
    port = free_port()
    dev = [sys.executable, "-m", "databuild_dagster", "dev", "-p", str(port)]
    process = start_server(dev, folder=folder, environment=environment, log=folder / "dev.log")
    try:
        found = []
        for number in range(rounds + 1):
            ref = Ref(f"day@{FIRST + timedelta(days=number)}")
            subprocess.run(
                databuild("want", "create", "-f", "definitions.py", ref),
                cwd=folder,
                env=environment,
                check=True,
                capture_output=True,
            )
            steps = steps_of(Queries(open_store(sqlite_url(home))), ref, times)
            found.append((*steps, seconds_of_plain(port, times / "plain")))
            print([f"{seconds:.1f}" for seconds in found[-1]], flush=True)
        return found[1:]
    finally:
        process.terminate()
        kill_processes_of(home)


def steps_of(queries: Queries, ref: Ref, times: Path) -> tuple[float, ...]:
    """The seconds of each of `STEPS` of a want. Raises `TimeoutError`."""
    wait(lambda: queries.canonical.of([ref])[ref].state is InstanceState.LIVE)
    last = queries.events.head().seq
    wanted, launched = (queries.events.named([fact], 0, last)[-1].at for fact in ("WantCreated", "JobRunBuffered"))
    called, ended = json.loads((times / (partition_key_of(ref) or "")).read_text())
    return launched - wanted, called - launched, ended - called


def seconds_of_plain(port: int, called: Path) -> float:
    began = time.time()
    body = json.dumps({"query": LAUNCH, "variables": {"params": launch_params("plain", [])}}).encode()
    request = urllib.request.Request(f"http://127.0.0.1:{port}/graphql", body, {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=MAX_SECONDS) as response:
        answer = json.load(response)["data"]["launchPipelineExecution"]
    assert answer["__typename"] == "LaunchRunSuccess", answer
    wait(lambda: called.is_file() and bool(called.read_text()))
    seconds = float(called.read_text()) - began
    called.unlink()
    return seconds


def wait(happened: Callable[[], bool]) -> None:
    deadline, pause = time.monotonic() + MAX_SECONDS, threading.Event()
    while not happened():
        if time.monotonic() > deadline:
            raise TimeoutError(f"not built in {MAX_SECONDS:.0f} s")
        pause.wait(0.2)


if __name__ == "__main__":
    main()
