"""A small project in an empty folder, and the command as a user has it.

The command runs in the process of the test (`Project.call`). A process costs ten times as much, for it imports Dagster, so
only a test whose subject is the process starts one (`Project.start`, `Project.run`). Assets return pandas frames: the
subject is the command line, and not Spark. A file in the project's folder makes an asset wait or fail.
"""

import io
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from pathlib import Path
from typing import IO, Any

import pytest

from databuild_dagster.bindings.registry.instance import close_engine, engine_for, open_instance
from databuild_dagster.cli.main import run
from databuild_dagster.cli.process import INTERRUPTED
from databuild_dagster.data.home import sqlite_url
from databuild_dagster.engine.holders import this_process
from databuild_dagster.model.commands import ClaimRefs
from databuild_dagster.model.events import BufferedRun
from databuild_dagster.store.queries.queries import Queries
from databuild_dagster.store.store import open_store
from tests.support.checking import check
from tests.support.child_environment import child_environment
from tests.support.command import Done
from tests.support.dagster_files import copy_dagster_files

__all__ = ["DEFINITIONS", "MAX_SECONDS", "PLAIN_DAGSTER_YAML", "Done", "Project", "wait_for_line", "wait_until"]

#: No command of these tests takes longer.
MAX_SECONDS = 240
#: No test leaves more to do than so many ticks do.
MAX_TICKS = 20

PLAIN_DAGSTER_YAML = "telemetry: {enabled: false}\n"
#: Dagster otherwise starts two processes for each step that copy what the step prints. Not for a process with a JVM in it:
#: the JVM would have our pipe, and it lives on for a while.
DAGSTER_YAML = f"""{PLAIN_DAGSTER_YAML}
compute_logs:
  module: dagster._core.storage.noop_compute_log_manager
  class: NoOpComputeLogManager
"""

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
    """Wait while the file `hold-<name>` is there; say so by another. A test gives up before this does."""
    (HERE / f"held-{name}").touch()
    for _ in range(30_000):
        if not (HERE / f"hold-{name}").exists():
            return
        threading.Event().wait(0.01)
    raise TimeoutError(f"hold-{name} was not removed within 300 s")


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


class Project:
    """A folder with definitions, and a Dagster home of its own."""

    def __init__(self, folder: Path, empty_home: Path) -> None:
        self.folder = folder
        self.home = folder / "home"
        shutil.copytree(empty_home, self.home)
        self.define(DEFINITIONS)
        (folder / "workspace.yaml").write_text("load_from:\n  - python_file: definitions.py\n")
        # Definitions that a test rewrites within one second would be taken from the byte code of those before.
        self.environment = child_environment() | {"DAGSTER_HOME": str(self.home), "PYTHONDONTWRITEBYTECODE": "1"}
        self.started: list[subprocess.Popen[str]] = []

    def define(self, definitions: str) -> None:
        """Write the definitions that commands load from now on."""
        (self.folder / "definitions.py").write_text(definitions)

    # Processes

    def start(self, *arguments: str, **environment: str) -> "subprocess.Popen[str]":
        """Start the command as a process of its own."""
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

    def run(self, *arguments: str, **environment: str) -> Done:
        """Run the command as a process of its own; for a test whose subject is the process."""
        process = self.start(*arguments, **environment)
        out, err = process.communicate(timeout=MAX_SECONDS)
        return Done(process.returncode, out, err)

    def end(self) -> None:
        """Leave neither processes nor open files."""
        for process in self.started:
            if process.poll() is None:
                process.kill()
                process.wait(MAX_SECONDS)
        self._forget_engine()

    # In the process of the test

    def call(self, *arguments: str, **environment: str) -> Done:
        """Run the command in this process, as if it had just started."""
        out, err = io.StringIO(), io.StringIO()
        self._forget_engine()
        with self.own_process(**environment), redirect_stdout(out), redirect_stderr(err):
            code = run(list(arguments))
        if code == INTERRUPTED:
            # The test run is to end, and the command took that for its own Ctrl-C.
            raise KeyboardInterrupt
        return Done(code, out.getvalue(), err.getvalue())

    def ask(self, *arguments: str) -> Any:
        """The JSON answer of a command; the command must succeed."""
        done = self.call(*arguments, "--json")
        assert done.code == 0, done
        return done.json

    def build(self, *arguments: str) -> Any:
        """The JSON answer of a build; the build must succeed."""
        return self.ask("build", *arguments)

    def call_while_held(self, key: str, act: Callable[[], object], *arguments: str) -> Done:
        """Run the command in this process; once it builds `key`, act in a thread before the build goes on."""

        def act_and_release() -> None:
            try:
                self.wait_until_held(key)
                act()
            finally:
                self.release(key)

        self.hold(key)
        with ThreadPoolExecutor(1) as threads:
            acting = threads.submit(act_and_release)
            done = self.call(*arguments)
            acting.result()
        return done

    @contextmanager
    def own_process(self, **environment: str) -> Iterator[None]:
        """This process with the project's folder, environment and modules, and as it was afterwards."""
        handler = signal.getsignal(signal.SIGINT)
        with pytest.MonkeyPatch.context() as patch:
            patch.chdir(self.folder)
            patch.setattr(sys, "dont_write_bytecode", True)
            if threading.current_thread() is threading.main_thread():
                signal.signal(signal.SIGINT, signal.default_int_handler)
            # The command sets DAGSTER_HOME where nothing else does; this takes it back.
            patch.setenv("DAGSTER_HOME", "")
            patch.delenv("DAGSTER_HOME")
            # The option --env sets it.
            patch.setenv("DATABUILD_ENV", "")
            patch.delenv("DATABUILD_ENV")
            given = {name: self.environment[name] for name in ("DAGSTER_HOME",) if name in self.environment}
            for name, value in (given | environment).items():
                patch.setenv(name, value)
            modules = self._modules()
            for name in modules:
                del sys.modules[name]
            others = dict(sys.modules)
            try:
                yield
            finally:
                for name in self._modules():
                    del sys.modules[name]
                sys.modules.update({name: module for name, module in others.items() if name not in sys.modules})
                if threading.current_thread() is threading.main_thread():
                    signal.signal(signal.SIGINT, handler)

    def _modules(self) -> list[str]:
        """The modules that were loaded from the project's folder. Dagster loads one that is there only once."""
        return [
            name
            for name, module in list(sys.modules.items())
            if str(getattr(module, "__file__", None) or "").startswith(f"{self.folder}{os.sep}")
        ]

    def _forget_engine(self) -> None:
        """An engine is kept for the life of a process; a command that begins has none yet."""
        close_engine(sqlite_url(self.home))

    # What assets do

    def hold(self, key: str) -> None:
        (self.folder / f"hold-{key}").touch()

    def release(self, key: str) -> None:
        (self.folder / f"hold-{key}").unlink()

    def wait_until_held(self, key: str) -> None:
        wait_until(lambda: (self.folder / f"held-{key}").exists(), f"the build of {key} began")

    def fail(self, key: str, *, yes: bool = True) -> None:
        path = self.folder / f"fail-{key}"
        path.touch() if yes else path.unlink()

    def claim(self, ref: str) -> str:
        """A Dagster run of this process asks for a ref and holds its lease; the Dagster run's id."""
        with open_instance(self.home) as instance:
            engine = engine_for(instance)
            run_id = engine.new_id()
            run = BufferedRun(engine.new_id(), (ref,), ref.partition("@")[2])
            engine.handle(
                ClaimRefs(
                    launch_id=engine.new_id(),
                    job=ref.partition("@")[0],
                    location="tests",
                    dagster_run_id=run_id,
                    holder=this_process(),
                    runs=(run,),
                )
            )
        return run_id

    def tick_until_idle(self) -> None:
        """Tick until a tick has nothing to do."""
        for _ in range(MAX_TICKS):
            done = self.call("admin", "tick", "--json")
            assert done.code == 0, done
            if not any(done.json.values()):
                return
        raise AssertionError(f"tick {MAX_TICKS} still had something to do: {done.json}")

    # The state

    @property
    def queries(self) -> Queries:
        return Queries(open_store(f"sqlite:///{self.home}/databuild.db"))

    def n_events(self) -> int:
        return self.queries.events.head().seq if (self.home / "databuild.db").exists() else 0

    @contextmanager
    def recording_nothing(self) -> Iterator[None]:
        """The store is the same afterwards."""
        before = self.n_events()
        yield
        assert self.n_events() == before

    def is_sound(self) -> bool:
        return not check(open_store(f"sqlite:///{self.home}/databuild.db"))


def wait_until(happened: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + MAX_SECONDS
    pause = threading.Event()
    while not happened():
        assert time.monotonic() < deadline, f"waited {MAX_SECONDS} s in vain until {what}"
        pause.wait(0.02)


def wait_for_line(process: "subprocess.Popen[str]", words: str, stream: IO[str] | None = None) -> list[str]:
    """The lines of a stream of a process, of stderr by default, up to the first that contains `words`."""
    found = stream or process.stderr
    assert found is not None
    lines: list[str] = []

    def read() -> None:
        for line in iter(found.readline, ""):
            lines.append(line)
            if words in line:
                return

    reader = threading.Thread(target=read, daemon=True)
    reader.start()
    reader.join(MAX_SECONDS)
    if not lines or words not in lines[-1]:
        ended = process.poll()
        process.kill()
        reader.join(MAX_SECONDS)
        out, err = process.communicate(timeout=MAX_SECONDS)
        why = f"did not print it in {MAX_SECONDS} s" if ended is None else f"ended with {ended}"
        raise AssertionError(f"no line with {words!r}: {process.args} {why}\n{''.join(lines)}{out}{err}")
    return lines


@pytest.fixture(scope="session")
def empty_home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_empty_home(tmp_path_factory.mktemp("empty") / "home")


def make_empty_home(home: Path) -> Path:
    """A Dagster home with Dagster's own databases and nothing in them: making them costs more than most commands."""
    copy_dagster_files()
    home.mkdir()
    (home / "dagster.yaml").write_text(DAGSTER_YAML)
    with open_instance(home) as instance:
        assert instance.get_runs_count() == 0
    return home


@pytest.fixture
def project(tmp_path: Path, empty_home: Path) -> Iterator[Project]:
    made = Project(tmp_path, empty_home)
    yield made
    made.end()


@pytest.fixture(scope="module")
def shared_project(tmp_path_factory: pytest.TempPathFactory, empty_home: Path) -> Iterator[Project]:
    """One for all tests of a file: what they find there must not depend on which of them ran before."""
    made = Project(tmp_path_factory.mktemp("shared"), empty_home)
    yield made
    made.end()


@pytest.fixture
def known_project(shared_project: Project) -> Iterator[Project]:
    """The shared project once the store knows its assets, for tests that record nothing."""
    if shared_project.n_events() == 0:
        assert shared_project.call("admin", "tick").code == 0
    with shared_project.recording_nothing():
        yield shared_project
