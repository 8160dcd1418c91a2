"""Publishers as processes, which are killed: a server that has imported everything forks one for each line that it is asked.

    python -m tests.support.publisher_processes HOME

A line is a JSON list of publishers that start together: `{}` publishes, `{"at_call": 3}` dies by SIGKILL as it is about to make
its third call below the warehouse, `{"after_seconds": 0.1}` is killed then. The answer is the list of their exit codes. The
server itself opens neither store nor table, so that its children inherit no thread and no lock.
"""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import databuild_dagster.features.tables.delta
import databuild_dagster.features.tables.iceberg  # noqa: F401
from databuild_dagster.data.home import sqlite_url
from databuild_dagster.engine.engine import Engine
from databuild_dagster.features.tables.publisher import publish
from databuild_dagster.store.store import open_store
from tests.support.catalog import SmallCatalog
from tests.support.faulty_disk import die_at_call

ASSET = "sales"
#: No publication of a test takes longer.
MAX_SECONDS = 60.0


def publish_here(home: Path, at_call: int | None) -> None:
    engine = Engine(open_store(sqlite_url(home)), SmallCatalog(()))
    warehouse = str(home / "warehouse")
    dataset = engine.queries.datasets.known(ASSET)
    if at_call is not None:
        die_at_call(warehouse, at_call)
    publish(engine, dataset, warehouse)


def forked(home: Path, at_call: int | None) -> int:
    pid = os.fork()
    if pid:
        return pid
    try:
        publish_here(home, at_call)
        os._exit(0)
    except BaseException:
        traceback.print_exc()
        os._exit(1)


def exit_code(pid: int, seconds: float) -> int:
    """Of a child that is killed after so many seconds, unless it has ended by then."""
    # Not by SIGCHLD: the one of an earlier child would end the wait at once.
    ended = os.pidfd_open(pid)
    select.select([ended], [], [], seconds)
    os.close(ended)
    if not os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT):
        os.kill(pid, signal.SIGKILL)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def serve(home: Path) -> None:
    for line in sys.stdin:
        asked = json.loads(line)
        pids = [forked(home, one.get("at_call")) for one in asked]
        codes = [
            exit_code(pid, one["after_seconds"])
            if "after_seconds" in one
            else os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
            for pid, one in zip(pids, asked, strict=True)
        ]
        print(json.dumps(codes), flush=True)


class Publishers:
    """The server, as a test asks it."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process

    def run(self, *asked: dict[str, Any]) -> list[int]:
        """The exit codes of publishers that start together."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(asked) + "\n")
        self._process.stdin.flush()
        answer = self._process.stdout.readline()
        assert answer, "the server has ended"
        codes: list[int] = json.loads(answer)
        return codes


@contextmanager
def publishers(home: Path, **environment: str) -> Iterator[Publishers]:
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.support.publisher_processes", str(home)],
        cwd=Path(__file__).parents[2],
        env=os.environ | environment,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        yield Publishers(process)
    finally:
        assert process.stdin is not None
        process.stdin.close()
        process.wait(MAX_SECONDS)
        assert process.stdout is not None
        process.stdout.close()


if __name__ == "__main__":
    serve(Path(sys.argv[1]))
