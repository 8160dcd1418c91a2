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
from functools import cached_property
from pathlib import Path
from typing import Any

import pytest

from databuild_dagster.store import Queries, Store, check, open_store
from tests.support.free_port import free_port

#: Nothing here takes longer, two cores under load included.
MAX_SECONDS = 240
#: How long processes have to end after Ctrl-C.
STOP_SECONDS = 60

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


class Dagster:
    """Web server and daemon of one home."""

    def __init__(self, folder: Path, definitions: str = DEFINITIONS, settings: str = SETTINGS) -> None:
        self.folder = folder
        self.home = folder / "home"
        self.home.mkdir()
        (self.home / "dagster.yaml").write_text(settings)
        (folder / "definitions.py").write_text(definitions)
        (folder / "workspace.yaml").write_text("load_from:\n  - python_file: definitions.py\n")
        self.environment = os.environ | {"DAGSTER_HOME": str(self.home)}
        self.port = free_port()
        self.log = folder / "dev.log"

    def start(self) -> None:
        command = [sys.executable, "-m", "databuild_dagster", "dev", "-w", "workspace.yaml", "-p", str(self.port)]
        with self.log.open("w") as log:
            self.process = subprocess.Popen(
                command,
                cwd=self.folder,
                env=self.environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        self.wait_until(lambda: bool(self._answers()), "GraphQL answers")

    def stop(self) -> None:
        """As Ctrl-C does it; whatever of the group is left then is ended."""
        os.killpg(self.process.pid, signal.SIGINT)
        try:
            self.process.wait(STOP_SECONDS)
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.process.pid, signal.SIGKILL)

    def databuild(self, *arguments: str) -> Any:
        done = subprocess.run(
            [sys.executable, "-m", "databuild_dagster", *arguments, "--json"],
            cwd=self.folder,
            env=self.environment,
            capture_output=True,
            text=True,
            timeout=MAX_SECONDS,
            check=False,
        )
        assert done.returncode == 0, done
        return json.loads(done.stdout.splitlines()[-1])

    def graphql(self, query: str, **variables: Any) -> dict[str, Any]:
        request = urllib.request.Request(
            f"http://127.0.0.1:{self.port}/graphql",
            json.dumps({"query": query, "variables": variables}).encode(),
            {"Content-Type": "application/json"},
        )
        with urllib.request.urlopen(request, timeout=60) as response:
            answer = json.load(response)
        assert "errors" not in answer, answer
        data: dict[str, Any] = answer["data"]
        return data

    def wait_until(self, happened: Callable[[], bool], what: str) -> None:
        deadline = time.monotonic() + MAX_SECONDS
        pause = threading.Event()
        while not happened():
            assert self.process.poll() is None, self.log.read_text()[-4000:]
            assert time.monotonic() < deadline, f"not until now: {what}\n{self.log.read_text()[-4000:]}"
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

    def violations(self) -> list[Any]:
        return list(check(self.store))


@pytest.fixture
def dagster(tmp_path: Path) -> Iterator[Dagster]:
    running = Dagster(tmp_path)
    running.start()
    yield running
    running.stop()
