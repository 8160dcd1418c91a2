"""A small project in an empty folder, and the command as a process, as a user has them.

The assets answer pandas frames, so that what is tested here is the command line and not Spark's start. An asset can be
told from outside, by files in the project's folder, to wait or to fail.
"""

import io
import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from databuild_dagster.cli.main import run
from databuild_dagster.store import Queries, check, open_store

#: No command of these tests takes longer.
MAX_SECONDS = 120

DEFINITIONS = '''
import threading
from pathlib import Path

import dagster as dg
import pandas as pd

from databuild_dagster import BuildContext, DepMiss, build_definitions, databuild_asset

HERE = Path(__file__).parent
daily = dg.DailyPartitionsDefinition("2024-01-29", end_date="2024-03-01")
monthly = dg.MonthlyPartitionsDefinition("2024-01-01", end_date="2024-03-01")


def hold(name):
    """Wait while the file `hold-<name>` is there; tell that we do by another."""
    (HERE / f"held-{name}").touch()
    for _ in range(6000):
        if not (HERE / f"hold-{name}").exists():
            return
        threading.Event().wait(0.01)


@databuild_asset(partitions_def=daily)
def orders(context: BuildContext) -> pd.DataFrame:
    hold(context.partition_key)
    if (HERE / f"fail-{context.partition_key}").exists():
        raise ValueError(f"no orders on {context.partition_key}")
    return pd.DataFrame({"day": [context.partition_key] * 2, "amount": [1.5, 2.5]})


@databuild_asset(partitions_def=monthly)
def revenue(orders: pd.DataFrame) -> pd.DataFrame:
    return pd.DataFrame({"revenue": [orders["amount"].sum()]})


@databuild_asset
def wrong_type() -> pd.DataFrame:
    return "not a frame"


@databuild_asset
def wrong_column(revenue_of_january: pd.DataFrame) -> pd.DataFrame:
    return revenue_of_january[["profit"]]


@databuild_asset
def revenue_of_january() -> pd.DataFrame:
    return pd.DataFrame({"revenue": [1.0]})


@databuild_asset
def needs_the_impossible() -> pd.DataFrame:
    raise DepMiss("orders@1999-01-01")


defs = build_definitions([orders, revenue, wrong_type, wrong_column, revenue_of_january, needs_the_impossible])
'''


class Done(NamedTuple):
    """A command that has ended."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        """The last line of stdout."""
        return json.loads(self.out.splitlines()[-1])


class Project:
    """A folder with definitions, and a Dagster home of its own."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.home = folder / "home"
        self.home.mkdir()
        (self.home / "dagster.yaml").write_text("telemetry: {enabled: false}\n")
        (folder / "definitions.py").write_text(DEFINITIONS)
        (folder / "workspace.yaml").write_text("load_from:\n  - python_file: definitions.py\n")
        # A process that has had a Spark client says so in its environment, and its children would be clients too.
        own = {name: value for name, value in os.environ.items() if not name.startswith("SPARK_")}
        self.environment = own | {"DAGSTER_HOME": str(self.home)}
        self.started: list[subprocess.Popen[str]] = []

    def start(self, *arguments: str, **environment: str) -> "subprocess.Popen[str]":
        process = subprocess.Popen(
            [sys.executable, "-m", "databuild_dagster", *arguments],
            cwd=self.folder,
            env=self.environment | environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self.started.append(process)
        return process

    def end(self) -> None:
        """A test that fails leaves nothing running."""
        for process in self.started:
            if process.poll() is None:
                process.kill()
                process.wait()

    def run(self, *arguments: str, **environment: str) -> Done:
        process = self.start(*arguments, **environment)
        out, err = process.communicate(timeout=MAX_SECONDS)
        return Done(process.returncode, out, err)

    def call(self, *arguments: str, **environment: str) -> Done:
        """The command in this process, which saves the imports; for whatever needs no process of its own."""
        out, err = io.StringIO(), io.StringIO()
        with pytest.MonkeyPatch.context() as patch, redirect_stdout(out), redirect_stderr(err):
            patch.chdir(self.folder)
            patch.setenv("DAGSTER_HOME", str(self.home))
            for name, value in environment.items():
                patch.setenv(name, value)
            code = run(list(arguments))
        return Done(code, out.getvalue(), err.getvalue())

    def ask(self, *arguments: str) -> Any:
        """What a command answers as JSON, which must succeed."""
        done = self.call(*arguments, "--json")
        assert done.code == 0, done
        return done.json

    def build(self, *arguments: str) -> Any:
        """What a build in a process of its own answers, which must succeed."""
        done = self.run("build", *arguments, "--json")
        assert done.code == 0, done
        return done.json

    # Telling assets what to do

    def hold(self, key: str) -> None:
        (self.folder / f"hold-{key}").touch()

    def release(self, key: str) -> None:
        (self.folder / f"hold-{key}").unlink()

    def wait_until_held(self, key: str) -> None:
        wait_until(lambda: (self.folder / f"held-{key}").exists(), f"the build of {key} began")

    def fail(self, key: str, *, yes: bool = True) -> None:
        path = self.folder / f"fail-{key}"
        path.touch() if yes else path.unlink()

    # The state, seen from here

    @property
    def queries(self) -> Queries:
        return Queries(open_store(f"sqlite:///{self.home}/databuild.db"))

    def n_events(self) -> int:
        return self.queries.head().seq if (self.home / "databuild.db").exists() else 0

    def is_sound(self) -> bool:
        return not check(open_store(f"sqlite:///{self.home}/databuild.db"))


def wait_until(happened: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + MAX_SECONDS
    pause = threading.Event()
    while not happened():
        assert time.monotonic() < deadline, f"waited {MAX_SECONDS} s in vain until {what}"
        pause.wait(0.02)


@pytest.fixture
def project(tmp_path: Path) -> Iterator[Project]:
    made = Project(tmp_path)
    yield made
    made.end()
