"""The example, January and the whole year: ours against plain PySpark, the floor, and plain Dagster, a peer; in one run.

    python -m bench.pipeline [--rounds N] [--days N]

- January: `databuild build carrier_monthly@2013-01-01` as a command, on a home without any data whose Spark server is
  warm; and the same command again, when there is nothing to do.
- Year: all tables of the year by `bench.timed_build`, which also tells the seconds that went into Dagster's own writes.
- floor: `bench.plain_spark`, the same tables, in one session on a server of the same kind; its second run, and for the
  year its third, for that is when nothing is cold any more.
- peer: `bench.plain_dagster`, one Dagster run per partition of `flights`, as plain Dagster runs it by default.

Ours and the floor take turns. Prints Markdown, for docs/performance.md.
"""

import argparse
import json
import os
import shutil
import sqlite3
import statistics
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from datetime import date, timedelta
from pathlib import Path
from typing import Any, NamedTuple

from bench import plain_dagster, plain_spark
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


class January(NamedTuple):
    """One round: seconds of the whole command, of it the building, of the command again, and where they went."""

    command: float
    building: float
    again: float
    jobs: dict[str, float]


class Year(NamedTuple):
    """One round: seconds from the first want to the last live ref, of them Dagster's writes, and where they went."""

    building: float
    dagster_writes: float
    n_job_runs: int
    peak_megabytes: float
    jobs: dict[str, float]


def main() -> None:
    parser = argparse.ArgumentParser(description="The example, three ways.")
    parser.add_argument("--rounds", type=int, default=3, help="rounds of ours and of the floor")
    parser.add_argument("--days", type=int, default=5, help="days of plain Dagster")
    options = parser.parse_args()
    # First, for a session of ours leaves its mode in the environment, and a plain user has none.
    peer = plain_dagster.measure(options.days, assets=["flights"])
    with tempfile.TemporaryDirectory(prefix="databuild-bench-") as name:
        ours, floors = Path(name, "ours"), Path(name, "floors")
        for home in (ours, floors):
            home.mkdir()
            shutil.copy(ROOT / "dagster.yaml", home)
        try:
            month = of_january(ours, floors, options.rounds)
            year = of_year(ours, floors, options.rounds)
        finally:
            stop_server(ours)
            stop_server(floors)
    report_january(*month, peer)
    report_year(*year, peer)


def of_january(home: Path, floors: Path, rounds: int) -> tuple[list[January], list[float]]:
    """Ours and the floor, in turns; the servers stay, everything else of the home is new in each round."""
    databuild(home, "build", WARM_UP)
    spark = open_session(SparkSettings(home=floors))
    measured, floor = [], []
    for _ in range(rounds):
        empty(home)
        command, built = databuild(home, "build", REF)
        again, nothing = databuild(home, "build", REF)
        assert nothing["launches"] == 0, nothing
        measured.append(January(command, float(str(built["seconds"])), again, seconds_by_job(home)))
        with tempfile.TemporaryDirectory() as out:
            plain_spark.run(spark, out)
            floor.append(plain_spark.run(spark, out)["total"])
    return measured, floor


def of_year(home: Path, floors: Path, rounds: int) -> tuple[list[Year], list[float]]:
    """The same for all tables of the year."""
    spark = open_session(SparkSettings(home=floors))
    measured, floor = [], []
    with tempfile.TemporaryDirectory() as out:
        for _ in range(2):
            plain_spark.run(spark, out, plain_spark.YEAR, plain_spark.ALL_TABLES)
        for _ in range(rounds):
            floor.append(plain_spark.run(spark, out, plain_spark.YEAR, plain_spark.ALL_TABLES)["total"])
            empty(home)
            _, answer = run(home, "bench.timed_build", *refs_of_the_year())
            _, rows = run(home, "databuild_dagster", "read", "year_report", "--json")
            assert sum(row["flights"] for row in rows) == FLIGHTS_OF_THE_YEAR, rows
            measured.append(
                Year(
                    building=answer["seconds"],
                    dagster_writes=answer["dagster_writes"],
                    n_job_runs=answer["job_runs"],
                    peak_megabytes=answer["peak_megabytes"],
                    jobs=seconds_by_job(home),
                )
            )
    return measured, floor


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


def databuild(home: Path, *arguments: str) -> tuple[float, Any]:
    """Seconds of the whole command, and what it printed."""
    return run(home, "databuild_dagster", *arguments, "--json")


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


def report_january(ours: list[January], floor: list[float], peer: plain_dagster.Cost) -> None:
    command = statistics.median(our.command for our in ours)
    building = statistics.median(our.building for our in ours)
    again = statistics.median(our.again for our in ours)
    second = statistics.median(floor)
    print(f"Medians of {len(ours)} rounds; plain Dagster: of {len(peer.runs)} runs.\n")
    print(f"| January, {JANUARY_REFS} partitions | seconds | × floor |\n|---|---|---|")
    print(f"| plain PySpark, second run in a warm session (the floor) | {second:.1f} | 1.0 |")
    print(f"| from the first want to the last live ref, warm server | {building:.1f} | {building / second:.2f} |")
    print(f"| `databuild build`, the whole command | {command:.1f} | {command / second:.2f} |")
    print(f"| the same command again, nothing to do | {again:.1f} | |")
    report_jobs(building, [our.jobs for our in ours])
    print(f"| before and after: imports, loading the definitions, exit | {command - building:.1f} |")


def report_year(ours: list[Year], floor: list[float], peer: plain_dagster.Cost) -> None:
    building = statistics.median(our.building for our in ours)
    without = statistics.median(our.building - our.dagster_writes for our in ours)
    writes = statistics.median(our.dagster_writes for our in ours)
    warm = statistics.median(floor)
    n = ours[0].n_job_runs
    print(f"\n| Year, all tables, {n:,} partitions | seconds | × floor |\n|---|---|---|")
    print(f"| plain PySpark, in a warm session (the floor) | {warm:.1f} | 1.0 |")
    print(f"| ours without Dagster's own writes | {without:.1f} | {without / warm:.2f} |")
    print(f"| ours with them | {building:.1f} | {building / warm:.2f} |")
    report_jobs(building, [our.jobs for our in ours])
    print(f"| of all that, Dagster's own writes | {writes:.1f} |")
    print(f"\nThe process that built it took {statistics.median(our.peak_megabytes for our in ours):.0f} MB.")
    peer_seconds = peer.seconds_per_partition
    print("\n| per partition | seconds | times ours |\n|---|---|---|")
    print(f"| ours, the year | {building / n:.3f} | 1 |")
    print(f"| plain Dagster, one run per partition | {peer_seconds:.2f} | {peer_seconds / (building / n):.0f} |")


def report_jobs(building: float, rounds: list[dict[str, float]]) -> None:
    print("\n| where ours goes | seconds |\n|---|---|")
    jobs = {job: statistics.median(item[job] for item in rounds) for job in rounds[0]}
    for job, seconds in jobs.items():
        print(f"| building {job} | {seconds:.1f} |")
    print(f"| between launches: ticks, Dagster's own events | {building - sum(jobs.values()):.1f} |")


if __name__ == "__main__":
    main()
