"""A Dagster as people run it: `databuild dev` as processes, and its GraphQL over HTTP."""

import contextlib
import http.client
import json
import os
import signal
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from typing import IO, Any, Self

from databuild_dagster.model.states import InstanceState
from databuild_dagster.store.queries.queries import Queries
from databuild_dagster.store.store import Store, open_store
from tests.support import command
from tests.support.checking import check
from tests.support.child_environment import child_environment
from tests.support.free_port import free_port
from tests.support.processes import kill_processes_of, processes_of, start_server

#: Nothing here takes longer, two cores under load included.
MAX_SECONDS = 240
#: After Ctrl-C; Dagster itself waits a minute for each of its processes. What is left then is killed.
STOP_SECONDS = 30

SETTINGS = "telemetry: {enabled: false}\n"

DEFINITIONS = """
import dagster as dg
import pandas as pd

from databuild_dagster import build_definitions, databuild_asset, BuildContext

daily = dg.DailyPartitionsDefinition("2024-01-29", end_date="2024-02-01")
monthly = dg.MonthlyPartitionsDefinition("2024-01-01", end_date="2024-02-01")


@databuild_asset(partitions_def=daily)
def orders(context: BuildContext) -> pd.DataFrame:
    return pd.DataFrame({"day": [context.partition_key], "amount": [2.0]})


@databuild_asset(partitions_def=monthly)
def revenue(orders: pd.DataFrame) -> pd.DataFrame:
    return pd.DataFrame({"revenue": [orders["amount"].sum()]})


defs = build_definitions([orders, revenue])
"""


def on_postgres(url: str) -> str:
    """The lines of dagster.yaml for Dagster's storage at the URL of a schema."""
    # Dagster's driver is named, or SQLAlchemy would take another.
    return f"storage: {{postgres: {{postgres_url: '{url.replace('+psycopg:', '+psycopg2:')}'}}}}\n"


class Dagster:
    """Web server and daemon of one home."""

    def __init__(self, folder: Path, definitions: str = DEFINITIONS, settings: str = SETTINGS) -> None:
        self.folder = folder
        self.home = folder / "home"
        self.home.mkdir()
        (self.home / "dagster.yaml").write_text(settings)
        (folder / "definitions.py").write_text(definitions)
        (folder / "workspace.yaml").write_text("load_from:\n  - python_file: definitions.py\n")
        self.environment = child_environment() | {"DAGSTER_HOME": str(self.home)}
        self.port = free_port()
        self.log = folder / "dev.log"

    @contextmanager
    def running(self) -> Iterator[Self]:
        """From its start until no process of its home is left, however the tests between end."""
        try:
            self.start()
            yield self
        finally:
            self.stop()

    def start(self) -> None:
        arguments = [sys.executable, "-m", "databuild_dagster", "dev", "-w", "workspace.yaml", "-p", str(self.port)]
        self.process = start_server(arguments, folder=self.folder, environment=self.environment, log=self.log)
        self.wait_until(lambda: bool(self._answers()), "GraphQL answers")

    def stop(self) -> None:
        """As Ctrl-C does it; what is left of the home then is killed, in whichever session it is."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGINT)
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(STOP_SECONDS)
        with self.log.open("a") as log:
            print("Killed after Ctrl-C:", processes_of(self.home), file=log)
        kill_processes_of(self.home)
        self.wait_for_end()

    def wait_for_end(self) -> None:
        """Until its first process has ended."""
        try:
            self.process.wait(MAX_SECONDS)
        except subprocess.TimeoutExpired as late:
            raise AssertionError(f"process {self.process.pid} of {self.home} did not end in {MAX_SECONDS} s") from late

    def databuild(self, *arguments: str) -> Any:
        """What a command answers, which must succeed; it runs in this process."""
        done = command.databuild(self.folder, self.home, *arguments, "--json")
        assert done.code == 0, done
        return done.json

    def start_databuild(self, *arguments: str) -> "subprocess.Popen[str]":
        """A command as a process of its own."""
        return self.start_process(sys.executable, "-m", "databuild_dagster", *arguments)

    def start_process(self, *arguments: str, stderr: IO[str] | int = subprocess.PIPE) -> "subprocess.Popen[str]":
        """What waits to be read later must fit into a pipe (64 KiB): else its writer waits, and a file is the place for it."""
        return subprocess.Popen(
            arguments,
            cwd=self.folder,
            env=self.environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=stderr,
            text=True,
        )

    def finish(self, process: "subprocess.Popen[str]") -> str:
        """What a process printed, which must succeed."""
        out, err = process.communicate(timeout=MAX_SECONDS)
        assert process.returncode == 0, f"{process.args}: {err[-3000:]}"
        return out

    def graphql(self, query: str, **variables: Any) -> dict[str, Any]:
        request = urllib.request.Request(
            f"http://127.0.0.1:{self.port}/graphql",
            json.dumps({"query": query, "variables": variables}).encode(),
            {"Content-Type": "application/json"},
        )
        with urllib.request.urlopen(request, timeout=250) as response:
            answer = json.load(response)
        assert "errors" not in answer, answer
        data: dict[str, Any] = answer["data"]
        return data

    def wait_until(self, happened: Callable[[], bool], what: str) -> None:
        deadline = time.monotonic() + MAX_SECONDS
        pause = threading.Event()
        while not happened():
            assert self.process.poll() is None, f"its process ended before {what}\n{self.log.read_text()[-4000:]}"
            assert time.monotonic() < deadline, f"waited {MAX_SECONDS} s until {what}\n{self.log.read_text()[-4000:]}"
            pause.wait(0.5)

    def _answers(self) -> bool:
        try:
            return bool(self.graphql("{ version }"))
        except (urllib.error.URLError, http.client.HTTPException, ConnectionError, TimeoutError):
            return False

    @cached_property
    def store(self) -> Store:
        return open_store(self.store_url)

    @property
    def store_url(self) -> str:
        return f"sqlite:///{self.home}/databuild.db"

    @property
    def queries(self) -> Queries:
        return Queries(self.store)

    def state(self, ref: str) -> InstanceState | None:
        return self.queries.canonical.states([ref])[ref]

    def wait_until_live(self, ref: str) -> None:
        self.wait_until(lambda: self.state(ref) is InstanceState.LIVE, f"{ref} is live")

    def are_live(self, *refs: str) -> bool:
        return all(self.state(ref) is InstanceState.LIVE for ref in refs)

    def violations(self) -> list[Any]:
        return list(check(self.store))
