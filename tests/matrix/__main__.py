"""Tries the package beside each row's versions, in an environment of its own, and prints what came of it.

Exit 1 if a row failed, or if a row of CI could not be tried.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from .environments import Broken, NotRun, build_wheels, python_of
from .rows import ROWS, Environment, Row
from .server import connect_server

SMOKE = Path(__file__).parent / "smoke"
ROW_SECONDS = 900


def main() -> int:
    parser = argparse.ArgumentParser(prog="make matrix", description=__doc__)
    parser.add_argument("--only", default="", metavar="TEXT", help="rows whose name contains TEXT")
    parser.add_argument("--ci", action="store_true", help="the rows that CI tries")
    given = parser.parse_args()
    rows = [row for row in ROWS if given.only.lower() in row.name.lower() and (row.in_ci or not given.ci)]
    if not rows:
        parser.error(f"no row has {given.only!r} in its name")
    wheels = build_wheels()
    with tempfile.TemporaryDirectory(prefix="matrix-") as folder, ExitStack() as running:
        started = Servers(wheels, folder, running)
        outcomes = {row.name: outcome_of(row, wheels, folder, started) for row in rows}
    width = max(map(len, outcomes))
    print()
    for name, outcome in outcomes.items():
        print(f"{name:{width}}  {outcome}")
    bad = ["failed", "not run"] if given.ci else ["failed"]
    return int(any(outcome.startswith(tuple(bad)) for outcome in outcomes.values()))


class Servers:
    """The Spark servers of the rows that are clients, each started when a row first needs it."""

    def __init__(self, wheels: Sequence[Path], folder: str, running: ExitStack) -> None:
        self._wheels, self._folder, self._running = wheels, folder, running
        self._urls: dict[Environment | None, str] = {}

    def url(self, server: Environment | None) -> str:
        """Raises `NotRun`, `Broken`."""
        if server not in self._urls:
            python = Path(sys.executable) if server is None else python_of(server, self._wheels)
            folder = Path(self._folder, f"server-{len(self._urls)}")
            folder.mkdir()
            self._urls[server] = self._running.enter_context(connect_server(str(folder), python))
        return self._urls[server]


def outcome_of(row: Row, wheels: Sequence[Path], folder: str, servers: Servers) -> str:
    """`passed`, `failed` or `not run`, with the reason; what the row did is printed as it happens."""
    print(row.name, flush=True)
    began = time.monotonic()
    try:
        python = python_of(row.environment, wheels)
        url = servers.url(row.server) if row.needs_server else ""
    except NotRun as reason:
        return f"not run: {reason}"
    except Broken as reason:
        print(reason, file=sys.stderr)
        return "failed: pip cannot install it"
    spark: dict[str, Any] = {"mode": row.mode} | ({"url": url} if row.needs_server else {})
    command = [str(python), "smoke.py"]
    command += [] if row.runs_functions else ["--without-functions"]
    # A copy: beside the checkout, its package would be what is imported.
    project = shutil.copytree(SMOKE, Path(folder) / row.name.replace(" ", "-"))
    environment = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "DAGSTER_HOME")}
    environment["SMOKE_SPARK"] = json.dumps(spark)
    try:
        done = subprocess.run(command, cwd=project, env=environment, timeout=ROW_SECONDS, check=False)
    except subprocess.TimeoutExpired:
        return f"failed: no end within {ROW_SECONDS} s"
    seconds = f"{time.monotonic() - began:.0f} s"
    return f"passed, {seconds}" if done.returncode == 0 else f"failed, {seconds}"


if __name__ == "__main__":
    sys.exit(main())
