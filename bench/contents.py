"""The speed of `databuild log check --deep --contents`, beside `sha256sum` with as many processes as cores.

Both read the same files from the page cache in turns, so the figures compare computing, not the disk.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from databuild_dagster.data.contents import JOURNAL_NAME, Comparison, Journal
from databuild_dagster.data.home import sqlite_url
from databuild_dagster.store.queries.queries import Queries
from databuild_dagster.store.store import open_store
from databuild_dagster.warehouse.threads import n_cores

DEFINITIONS = """
import dagster as dg, numpy as np, pandas as pd
from databuild_dagster import BuildContext, build_definitions, databuild_asset

@databuild_asset(partitions_def=dg.StaticPartitionsDefinition([str(n) for n in range({partitions})]))
def noise(context: BuildContext) -> pd.DataFrame:
    return pd.DataFrame({{"n": np.random.default_rng().integers(0, 2**62, {rows})}})

defs = build_definitions([noise])
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--partitions", type=int, default=16)
    parser.add_argument("--megabytes", type=float, default=32.0, help="of each partition")
    parser.add_argument("--rounds", type=int, default=5)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="databuild-bench-") as folder:
        home = Path(folder) / "home"
        home.mkdir()
        (home / "dagster.yaml").write_text("telemetry: {enabled: false}\n")
        os.environ["DAGSTER_HOME"] = str(home)
        rows = int(given.megabytes * 1_000_000 / 8)
        definitions = DEFINITIONS.format(partitions=given.partitions, rows=rows)
        (Path(folder) / "definitions.py").write_text(definitions)
        command(folder, "build", f"noise@0..{given.partitions - 1}", "-f", "definitions.py")
        files = sorted(map(str, (home / "warehouse").rglob("*.parquet")))
        seconds = measured(folder, home, files, given.rounds)
        n_bytes = sum(map(os.path.getsize, files))
    print(f"{len(files)} files, {n_bytes:,} bytes, {n_cores()} cores")
    for name, found in seconds.items():
        middle = statistics.median(found)
        print(f"{name:30} {middle:7.2f} s  {n_bytes / middle / 1e6:7.0f} MB/s")


def measured(folder: str, home: Path, files: list[str], rounds: int) -> dict[str, list[float]]:
    """The seconds of each way, in turns."""
    seconds: dict[str, list[float]] = {"sha256sum": [], "comparison": [], "the whole command": []}
    for _ in range(rounds):
        began = time.perf_counter()
        sums = ["xargs", "-0", "-P", str(n_cores()), "-n", "1", "sha256sum"]
        subprocess.run(sums, input="\0".join(files).encode(), check=True, stdout=subprocess.DEVNULL)
        seconds["sha256sum"].append(time.perf_counter() - began)
        began = time.perf_counter()
        queries = Queries(open_store(sqlite_url(home)))
        assert list(Comparison(queries, Journal(str(home / JOURNAL_NAME))).faults()) == []
        seconds["comparison"].append(time.perf_counter() - began)
        began = time.perf_counter()
        answer = json.loads(command(folder, "log", "check", "--deep", "--contents", "--json"))
        assert (answer["ok"], answer["contents"]["files"]) == (True, len(files)), answer
        seconds["the whole command"].append(time.perf_counter() - began)
    return seconds


def command(folder: str, *arguments: str) -> str:
    """The stdout of a `databuild` command of its own process."""
    called = [sys.executable, "-m", "databuild_dagster", *arguments]
    return subprocess.run(called, cwd=folder, check=True, stdout=subprocess.PIPE, text=True).stdout


if __name__ == "__main__":
    main()
