"""January of the example: ours against plain PySpark, the floor, and against plain Dagster, a peer; in one run.

    python -m bench.pipeline [--rounds N] [--days N]

- ours: `databuild build carrier_monthly@2013-01-01` as a command, on a home without any data whose Spark server is warm;
  and the same command again, when there is nothing to do.
- floor: `bench.plain_spark` twice in one session on a server of the same kind; its second run.
- peer: `bench.plain_dagster`, one Dagster run per partition of `flights`, as plain Dagster runs it by default.

Prints Markdown, for docs/performance.md.
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
from pathlib import Path
from typing import NamedTuple

from bench import plain_dagster, plain_spark
from databuild_dagster.spark import SparkSettings, open_session, stop_server

ROOT = Path(__file__).parent.parent
REF = "carrier_monthly@2013-01-01"
#: Warms the Spark server up without touching January.
WARM_UP = "flight_delays@2013-02-01"
#: Refs that January takes: 31 days of three tables, the airlines, the month.
JANUARY_REFS = 95
MAX_SECONDS = 600


class Ours(NamedTuple):
    """One round: seconds of the whole command, of it the building, of the command again, and where they went."""

    command: float
    building: float
    again: float
    jobs: dict[str, float]


def main() -> None:
    parser = argparse.ArgumentParser(description="January of the example, three ways.")
    parser.add_argument("--rounds", type=int, default=3, help="rounds of ours and of the floor")
    parser.add_argument("--days", type=int, default=5, help="days of plain Dagster")
    options = parser.parse_args()
    # First, for a session of ours leaves its mode in the environment, and a plain user has none.
    peer = plain_dagster.measure(options.days, assets=["flights"])
    with tempfile.TemporaryDirectory(prefix="databuild-bench-") as name:
        home = Path(name, "home")
        home.mkdir()
        shutil.copy(ROOT / "dagster.yaml", home)
        try:
            ours = measure_ours(home, options.rounds)
            floor = measure_floor(home, options.rounds)
        finally:
            stop_server(home)
    report(ours, floor, peer)


def measure_ours(home: Path, rounds: int) -> list[Ours]:
    """The server stays, everything else of the home is new in each round."""
    databuild(home, "build", WARM_UP)
    measured = []
    for _ in range(rounds):
        for path in home.iterdir():
            if path.name not in ("spark", "dagster.yaml"):
                shutil.rmtree(path) if path.is_dir() else path.unlink()
        command, built = databuild(home, "build", REF)
        again, nothing = databuild(home, "build", REF)
        assert nothing["launches"] == 0, nothing
        measured.append(Ours(command, float(str(built["seconds"])), again, seconds_by_job(home)))
    return measured


def databuild(home: Path, *arguments: str) -> tuple[float, dict[str, object]]:
    """Seconds of the whole command, and what it printed."""
    began = time.perf_counter()
    done = subprocess.run(
        [sys.executable, "-m", "databuild_dagster", *arguments, "--json"],
        cwd=ROOT,
        env=os.environ | {"DAGSTER_HOME": str(home)},
        capture_output=True,
        text=True,
        timeout=MAX_SECONDS,
        check=False,
    )
    if done.returncode:
        raise RuntimeError(f"databuild {' '.join(arguments)} failed:\n{done.stdout}\n{done.stderr[-4000:]}")
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


def measure_floor(home: Path, rounds: int) -> list[float]:
    """The second run of each round's pair."""
    spark = open_session(SparkSettings(home=home))
    seconds = []
    for _ in range(rounds):
        with tempfile.TemporaryDirectory() as out:
            plain_spark.run(spark, out)
            seconds.append(plain_spark.run(spark, out)["total"])
    return seconds


def report(ours: list[Ours], floor: list[float], peer: plain_dagster.Cost) -> None:
    command = statistics.median(each.command for each in ours)
    building = statistics.median(each.building for each in ours)
    again = statistics.median(each.again for each in ours)
    second = statistics.median(floor)
    per_partition = command / JANUARY_REFS
    print(f"Medians of {len(ours)} rounds; plain Dagster: of {len(peer.runs)} runs.\n")
    print("| January, 95 partitions | seconds | × floor |\n|---|---|---|")
    print(f"| plain PySpark, second run in a warm session (the floor) | {second:.1f} | 1.0 |")
    print(f"| `databuild build`, the whole command, warm server | {command:.1f} | {command / second:.1f} |")
    print(f"| of that, from the first want to the last live ref | {building:.1f} | {building / second:.1f} |")
    print(f"| the same command again, nothing to do | {again:.1f} | |")
    print("\n| per partition | seconds | times ours |\n|---|---|---|")
    print(f"| ours | {per_partition:.2f} | 1 |")
    peer_seconds = peer.seconds_per_partition
    print(f"| plain Dagster, one run per partition | {peer_seconds:.2f} | {peer_seconds / per_partition:.0f} |")
    print("\n| where ours goes | seconds |\n|---|---|")
    jobs = {job: statistics.median(each.jobs[job] for each in ours) for job in ours[0].jobs}
    for job, seconds in jobs.items():
        print(f"| building {job} | {seconds:.1f} |")
    print(f"| between launches: ticks, Dagster's own events | {building - sum(jobs.values()):.1f} |")
    print(f"| before and after: imports, loading the definitions, exit | {command - building:.1f} |")


if __name__ == "__main__":
    main()
