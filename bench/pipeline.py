"""The example, January and the whole year: ours against plain PySpark, the floor, and plain Dagster, a peer; in one run.

    python -m bench.pipeline [--rounds N] [--days N]

- January: `databuild build carrier_monthly@2013-01-01` as a command, on a home without any data whose Spark server is
  warm; and the same command again, when there is nothing to do.
- Year: all tables of the year by `bench.timed_build`, from the first want on; it also tells what went into Dagster's own writes.
- Year by Sail: the same, with the peak of the memory of the process that builds.
- floor: `bench.plain_spark`, the same tables, in one session on a server of the same kind; its second run, and for the
  year its third, for that is when nothing is cold any more.
- peer: `bench.plain_dagster`, one Dagster run per partition of `flights`, as plain Dagster runs it by default.

Ours and the floor take turns. All are processor seconds, of the command with its threads and of the Spark server. Records the tables
`pipeline-january`, `pipeline-year`, `year-sail` and `pipeline-plain-dagster`.
"""

import argparse
import json
import os
import shutil
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable
from datetime import date, timedelta
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

from pyspark.sql import SparkSession

from bench import plain_dagster, plain_spark
from bench.processor import adopt_daemons, processor_seconds
from bench.results import record
from databuild_dagster.spark.server import stop_server
from databuild_dagster.spark.session import open_session
from databuild_dagster.spark.settings import SparkSettings

ROOT = Path(__file__).parent.parent
REF = "carrier_monthly@2013-01-01"
#: Warms the Spark server up without touching January.
WARM_UP = "flight_delays@2013-02-01"
#: Refs that January takes: 31 days of three tables, the airlines, the month.
JANUARY_REFS = 95
FLIGHTS_OF_THE_YEAR = 336_776
MAX_SECONDS = 600


class Year(NamedTuple):
    """One round, from the first want to the last live ref."""

    building: float
    dagster_writes: float
    n_job_runs: int


def main() -> None:
    parser = argparse.ArgumentParser(description="The example, three ways.")
    parser.add_argument("--rounds", type=int, default=3, help="rounds of ours and of the floor")
    parser.add_argument("--days", type=int, default=5, help="days of plain Dagster")
    options = parser.parse_args()
    adopt_daemons()
    command = f"python -m bench.pipeline --rounds {options.rounds} --days {options.days}"
    # First, for a session of ours leaves its mode in the environment, and a plain user has none.
    before = processor_seconds()
    plain_dagster.measure(options.days, assets=["flights"])
    peer = (processor_seconds() - before) / options.days
    with tempfile.TemporaryDirectory(prefix="databuild-bench-") as name:
        ours, sail, floors = Path(name, "ours"), Path(name, "sail"), Path(name, "floors")
        for home in (ours, sail, floors):
            home.mkdir()
            shutil.copy(ROOT / "dagster.yaml", home)
        try:
            record_sail(command, [by_sail(sail) for _ in range(options.rounds)])
            record_january(command, *of_january(ours, floors, options.rounds))
            record_year(command, *of_year(ours, floors, options.rounds), peer)
        finally:
            for home in (ours, sail, floors):
                stop_server(home)


def of_january(home: Path, floors: Path, rounds: int) -> tuple[list[float], list[float], list[float]]:
    """The whole command, the command again, and the floor, in turns; the servers stay, everything else of the home is new in each round."""
    databuild(home, "build", WARM_UP)
    spark = open_session(SparkSettings(home=floors))
    commands, again, floor = [], [], []
    for _ in range(rounds):
        empty(home)
        commands.append(processor(lambda: databuild(home, "build", REF)))
        again.append(processor(lambda: databuild(home, "build", REF)))
        with tempfile.TemporaryDirectory() as out:
            plain_spark.run(spark, out)
            floor.append(processor(partial(plain_spark.run, spark, out)))
    return commands, again, floor


def of_year(home: Path, floors: Path, rounds: int) -> tuple[list[Year], list[float]]:
    """The same for all tables of the year."""
    spark = open_session(SparkSettings(home=floors))
    with tempfile.TemporaryDirectory() as out:
        for _ in range(2):
            floor_of_the_year(spark, out)
        measured, floor = [], []
        for _ in range(rounds):
            floor.append(processor(lambda: floor_of_the_year(spark, out)))
            empty(home)
            before = processor_seconds()
            _, answer = run(home, "bench.timed_build", *refs_of_the_year())
            whole = processor_seconds() - before
            _, rows = run(home, "databuild_dagster", "read", "year_report", "--json")
            assert sum(row["flights"] for row in rows) == FLIGHTS_OF_THE_YEAR, rows
            measured.append(Year(whole - answer["loading_cpu"], answer["dagster_writes_cpu"], answer["job_runs"]))
    return measured, floor


def by_sail(home: Path) -> dict[str, float]:
    """Processor seconds of the whole command for the year, by a warm server, and what the process that builds says of itself."""
    databuild(home, "build", WARM_UP, EXAMPLE_SPARK="sail")
    empty(home)
    before = processor_seconds()
    _, answer = run(home, "bench.timed_build", *refs_of_the_year(), EXAMPLE_SPARK="sail")
    return {**answer, "all_processes": processor_seconds() - before}


def floor_of_the_year(spark: SparkSession, out: str) -> None:
    plain_spark.run(spark, out, plain_spark.YEAR, plain_spark.ALL_TABLES)


def processor(work: Callable[[], object]) -> float:
    """Of this process and of all below it."""
    here, below = time.process_time(), processor_seconds()
    work()
    return time.process_time() - here + processor_seconds() - below


def refs_of_the_year() -> list[str]:
    """What nothing else needs: with what it needs, all tables of all days and months."""
    days = (date(2013, 1, 1) + timedelta(days=n) for n in range(365))
    months = [f"2013-{month:02}-01" for month in range(1, 13)]
    return [
        "year_report",
        "planes",
        *(f"airport_daily@{day}" for day in days),
        *(f"{asset}@{month}" for asset in ("by_destination", "by_hour") for month in months),
    ]


def empty(home: Path) -> None:
    for path in home.iterdir():
        if path.name not in ("spark", "dagster.yaml"):
            shutil.rmtree(path) if path.is_dir() else path.unlink()


def databuild(home: Path, *arguments: str, **environment: str) -> tuple[float, Any]:
    """Seconds of the whole command, and what it printed."""
    return run(home, "databuild_dagster", *arguments, "--json", folder=ROOT, **environment)


def run(home: Path, module: str, *arguments: str, folder: Path = ROOT, **environment: str) -> tuple[float, Any]:
    """The same for any of Python's modules that prints JSON last."""
    began = time.perf_counter()
    done = subprocess.run(
        [sys.executable, "-m", module, *arguments],
        cwd=folder,
        env=os.environ | {"DAGSTER_HOME": str(home)} | environment,
        capture_output=True,
        text=True,
        timeout=MAX_SECONDS,
        check=False,
    )
    if done.returncode:
        raise RuntimeError(f"{module} {' '.join(arguments[:3])} failed:\n{done.stdout}\n{done.stderr[-4000:]}")
    return time.perf_counter() - began, json.loads(done.stdout.splitlines()[-1])


def seconds_by_job(home: Path) -> dict[str, float]:
    """From the start of each launch to the end of its last job run."""
    seconds: dict[str, float] = defaultdict(float)
    with sqlite3.connect(home / "databuild.db") as connection:
        rows = connection.execute(
            "SELECT l.job, max(j.ended_at) - min(j.started_at) FROM databuild_job_runs j "
            "JOIN databuild_launches l ON l.id = j.launch_id WHERE j.started_at IS NOT NULL GROUP BY l.id"
        )
        for job, taken in rows:
            seconds[job] += taken
    return dict(seconds)


def record_sail(command: str, found: list[dict[str, float]]) -> None:
    def of(name: str, digits: int) -> str:
        return f"{median(one[name] for one in found):,.{digits}f}"

    rows = [
        ["CPU s of all processes", of("all_processes", 1), "24"],
        ["of them, the process that builds", of("cpu", 1), ""],
        ["of them, Dagster's own writes", of("dagster_writes_cpu", 1), ""],
        ["calls of Dagster's writes", of("n_dagster_writes", 0), ""],
        ["peak memory of the process that builds, MB", of("peak_megabytes", 0), "350"],
    ]
    print(record("year-sail", command, ["the year by Sail", "measured", "aim"], rows, raw=found))


def record_january(command: str, ours: list[float], again: list[float], floor: list[float]) -> None:
    rows = [
        ["plain PySpark, second run in a warm session (the floor)", f"{median(floor):.1f}", "1.0"],
        ["`databuild build`, the whole command", f"{median(ours):.1f}", f"{median(ours) / median(floor):.2f}"],
        ["the same command again, nothing to do", f"{median(again):.1f}", ""],
    ]
    columns = [f"January, {JANUARY_REFS} partitions", "CPU s", "× floor"]
    raw = {"ours": ours, "again": again, "floor": floor}
    print(record("pipeline-january", command, columns, rows, raw=raw))


def record_year(command: str, ours: list[Year], floor: list[float], peer: float) -> None:
    building = median(our.building for our in ours)
    without = median(our.building - our.dagster_writes for our in ours)
    warm, n = median(floor), ours[0].n_job_runs
    rows = [
        ["plain PySpark, in a warm session (the floor)", f"{warm:.1f}", "1.0"],
        ["ours without Dagster's own writes", f"{without:.1f}", f"{without / warm:.2f}"],
        ["ours with them", f"{building:.1f}", f"{building / warm:.2f}"],
    ]
    raw = {"ours": ours, "floor": floor}
    print(record("pipeline-year", command, [f"Year, all tables, {n:,} partitions", "CPU s", "× floor"], rows, raw=raw))
    each = building / n
    rows = [
        ["ours, the year", f"{each:.3f}", "1"],
        ["plain Dagster, one run per partition", f"{peer:.2f}", f"{peer / each:.0f}"],
    ]
    print(record("pipeline-plain-dagster", command, ["per partition", "CPU s", "times ours"], rows))


if __name__ == "__main__":
    main()
