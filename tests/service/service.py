"""A home with clients and an orchestrator at work, and the troubles that their processes have."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import pandas as pd

from tests.support.postgres import postgres_server
from tests.support.processes import kill_processes_of

from .client import STOP
from .history import Call, Execution, Final, Instance, Troubles, calls_of, executions_of, faults
from .pipeline import CALLS, REFS

ROOT = Path(__file__).parent.parent.parent
#: Debian's package `faketime`; without it the clocks of processes are right.
FAKE_TIME = Path("/usr/lib/x86_64-linux-gnu/faketime/libfaketimeMT.so.1")
#: A client's last command ends within this time: a build, and ten seconds of its step.
MAX_END_SECONDS = 120.0
SETTINGS = "telemetry: {enabled: false}\n"
ORCHESTRATOR = "orchestrator"


class Service:
    """Within it the processes run. After it `judged` says what was wrong."""

    def __init__(self, folder: Path, *, database: str, n_clients: int, seed: int) -> None:
        self.folder = folder
        self._rng = random.Random(seed)
        self._url = postgres_server().fresh_url() if database == "postgres" else None
        self._names = [ORCHESTRATOR, *(f"client{number}" for number in range(n_clients))]
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        self._killed: dict[int, float] = {}
        self._frozen: dict[int, list[tuple[float, float]]] = {}
        self._ended = 0.0
        self._troubles: Counter[str] = Counter()
        home = folder / "home"
        home.mkdir(parents=True)
        (home / "dagster.yaml").write_text(SETTINGS)
        (folder / "workspace.yaml").write_text("load_from:\n  - python_module: tests.service.pipeline\n")

    # The processes

    def __enter__(self) -> Self:
        self._ask("build", *REFS)
        for name in self._names:
            self._start(name)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Each client ends after its command."""
        (self.folder / STOP).touch()
        for name, process in self._processes.items():
            try:
                process.wait(MAX_END_SECONDS)
            except subprocess.TimeoutExpired:
                self._troubles[f"{name} did not end within {MAX_END_SECONDS:.0f} s"] += 1
                self._kill(name)
        self._ended = time.monotonic()
        # A killed client leaves those that copy its output.
        kill_processes_of(self.folder / "home")

    def _start(self, name: str) -> None:
        options = ["--ticks"] if name == ORCHESTRATOR else []
        arguments = [str(self.folder), name, str(self._rng.randrange(2**32)), *options]
        log = (self.folder / f"{name}.log").open("ab")
        self._processes[name] = subprocess.Popen(
            [sys.executable, "-m", "tests.service.client", *arguments],
            cwd=self.folder,
            env=self._environment(name),
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
        log.close()

    def _environment(self, name: str | None = None) -> dict[str, str]:
        own = os.environ | {
            "DAGSTER_HOME": str(self.folder / "home"),
            "SERVICE_FOLDER": str(self.folder),
            "PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")]),
        }
        if self._url is not None:
            own["DATABUILD_DB_URL"] = self._url
        if name is not None and FAKE_TIME.exists():
            self._clock(name).write_text("+0")
            own |= {
                "LD_PRELOAD": str(FAKE_TIME),
                "FAKETIME_TIMESTAMP_FILE": str(self._clock(name)),
                "FAKETIME_CACHE_DURATION": "1",
                "DONT_FAKE_MONOTONIC": "1",
            }
        return own

    def _clock(self, name: str) -> Path:
        return self.folder / f"clock-{name}"

    # Troubles

    def trouble(self, seconds: float, *, least_calls: int = 0) -> None:
        """Kill, freeze and set clocks for so long, and until clients have called so often; start again what was killed."""
        end = time.monotonic() + seconds
        while time.monotonic() < end or len(self.calls()) < least_calls:
            self._wait(self._rng.uniform(1.0, 6.0))
            name = self._rng.choice(self._names)
            what = self._rng.choices(["kill", "freeze", "freeze beyond the lease", "clock"], [6, 3, 1, 2])[0]
            match what:
                case "kill":
                    self._kill(name)
                    self._start(name)
                case "clock":
                    if not FAKE_TIME.exists():
                        continue
                    self._clock(name).write_text(self._rng.choice(["+40", "-40", "+3600", "-7200", "+0", "+0", "+0"]))
                case _:
                    self._freeze(name, self._rng.uniform(35, 45) if "lease" in what else self._rng.uniform(0.5, 8))
            self._troubles[what] += 1

    def _wait(self, seconds: float) -> None:
        """A process that ended by itself is a fault of its own."""
        until = time.monotonic() + seconds
        while (left := until - time.monotonic()) > 0:
            name, process = next(iter(self._processes.items()))
            try:
                process.wait(left)
            except subprocess.TimeoutExpired:
                continue
            raise AssertionError(f"{name} ended by {process.returncode}: {self.folder / name}.log")

    def _kill(self, name: str) -> None:
        process = self._processes[name]
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        self._killed[process.pid] = time.monotonic()

    def _freeze(self, name: str, seconds: float) -> None:
        process, since = self._processes[name], time.monotonic()
        os.killpg(process.pid, signal.SIGSTOP)
        try:
            time.sleep(seconds)
        finally:
            os.killpg(process.pid, signal.SIGCONT)
        self._frozen.setdefault(process.pid, []).append((since, time.monotonic()))

    # The judgment

    def judged(self) -> list[str]:
        """The broken promises."""
        found = faults(self.calls(), self.executions(), Troubles(self._killed, self._frozen, self._ended), self.final())
        return found + [trouble for trouble in self._troubles if "did not end" in trouble]

    def calls(self) -> list[Call]:
        return calls_of(self.folder)

    def executions(self) -> list[Execution]:
        return executions_of(self.folder / CALLS)

    def final(self) -> Final:
        """Asked when nothing else works any more."""
        of_ref = {ref: self._ask("history", ref) for ref in REFS}
        tokens = {
            row["uuid"]: self._data_of(ref, row["uuid"]) for ref, rows in of_ref.items() for row in _were_live(rows)
        }
        instances = {
            ref: [
                Instance(
                    row["uuid"],
                    tokens[row["uuid"]][ref[0]],
                    next((tokens[used]["a"] for used in row["inputs"]), None),
                    tokens[row["uuid"]]["a"] if ref[0] == "b" else None,
                )
                for row in _were_live(rows)
            ]
            for ref, rows in of_ref.items()
        }
        wants = {want["id"]: want["state"] for want in self._ask("want", "list", "--all", "--limit", "100000")}
        wrong = self._ask("log", "check", "--deep")
        return Final(instances, wants, "" if wrong["ok"] else json.dumps(wrong))

    def _data_of(self, ref: str, uuid: str) -> dict[str, str]:
        folder = self.folder / "home" / "warehouse" / ref[0] / "data" / f"instance={uuid}"
        (file,) = folder.glob("*.parquet")
        row: dict[str, str]
        (row,) = pd.read_parquet(file).to_dict("records")
        return row

    def _ask(self, *arguments: str) -> Any:
        done = subprocess.run(
            [sys.executable, "-m", "databuild_dagster", *arguments, "--json"],
            cwd=self.folder,
            env=self._environment(),
            capture_output=True,
            text=True,
        )
        try:
            return json.loads(done.stdout)
        except ValueError:
            raise AssertionError(f"databuild {' '.join(arguments)} printed {done.stdout} {done.stderr}") from None

    def summary(self) -> str:
        calls, executions = self.calls(), self.executions()
        of_kind = ", ".join(f"{n} {what}" for what, n in sorted(Counter(call.what for call in calls).items()))
        refused = sum(call.error is not None for call in calls)
        cut = sum(call.answered is None for call in calls)
        troubles = ", ".join(f"{n} times {what}" for what, n in self._troubles.items())
        clocks = "" if FAKE_TIME.exists() else "; clocks that jump: not run, libfaketime is not installed"
        return (
            f"{len(calls)} commands ({of_kind}), {refused} refused, {cut} cut off; {len(executions)} calls of functions; "
            f"{troubles}{clocks}"
        )


def _were_live(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [row for row in rows if row["live_since"]]
