"""A build by a Spark that does not see the warehouse: how long until the command says so, and what it has recorded."""

import os
import sqlite3
import subprocess
import sys
import time
from pathlib import Path
from typing import NamedTuple

from bench.pipeline import MAX_SECONDS, REF, ROOT


class Refusal(NamedTuple):
    """Of one command."""

    seconds: float
    exit_code: int
    job_runs: int
    wants: int
    sentence: str


def refused_build(url: str, home: Path) -> Refusal:
    """Build into a folder of this machine, which is hidden from Spark."""
    warehouse = home / "warehouse"
    warehouse.mkdir()
    environment = {
        "DAGSTER_HOME": str(home),
        "BENCH_SPARK": url,
        "BENCH_WAREHOUSE": str(warehouse),
        "PYTHONPATH": str(ROOT),
    }
    began = time.perf_counter()
    command = [sys.executable, "-m", "databuild_dagster", "build", REF]
    done = subprocess.run(
        command,
        cwd=home,
        env=os.environ | environment,
        capture_output=True,
        text=True,
        timeout=MAX_SECONDS,
        check=False,
    )
    seconds = time.perf_counter() - began
    with sqlite3.connect(home / "databuild.db") as connection:
        job_runs, wants = (
            connection.execute(f"SELECT count(*) FROM databuild_{table}").fetchone()[0]
            for table in ("job_runs", "wants")
        )
    return Refusal(seconds, done.returncode, job_runs, wants, done.stderr.strip())
