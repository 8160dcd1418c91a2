"""A deployment at work, and its troubles: wants come in, processes are killed and frozen, and a supervisor starts them again."""

import http.client
import json
import os
import random
import signal
import subprocess
import sys
import threading
import time
import urllib.request
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import cached_property
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from bench.soak.database import Database
from bench.soak.processes import DEV, FREEZE_SECONDS, KINDS, SERVICES, Kind, Processes, shuffled
from bench.soak.project import ARRIVALS, DEFINITIONS, LANDING, N_KEYS, WITNESS
from databuild_dagster.model.refs import Ref, asset_of, make_ref, partition_key_of
from databuild_dagster.store.errors import StoreUnusable
from databuild_dagster.store.queries.queries import Queries
from databuild_dagster.store.queries.wants import WantFilter
from databuild_dagster.store.store import Store, open_store
from tests.support.free_port import free_port
from tests.support.materialize_button import LAUNCH, launch_params
from tests.support.processes import kill_processes_of, processes_of, start_server

SETTINGS = "telemetry: {enabled: false}\n"
COORDINATOR = f"{SETTINGS}run_coordinator: {{module: databuild_dagster, class: DatabuildRunCoordinator}}\n"

#: The most wanted refs that are open at once: more would only queue.
MAX_OPEN = 15
#: `databuild build` processes at once.
MAX_BUILDS = 2
#: Nothing that is waited for takes longer, two cores under load included.
MAX_SECONDS = 240.0
#: Until all wants have ended after the last kill: a launch that was silent for minutes is among them.
END_SECONDS = 900.0
#: Processes that are frozen at the same time, the database included.
MAX_FROZEN = 2
#: The part of the troubles that are freezes.
FREEZES = 0.4
#: How long PostgreSQL is away after it was killed, at most.
AWAY_SECONDS = 15.0
#: How long a service may be missing before the supervisor starts all of them again, and how long all have to come up.
PATIENCE_SECONDS = 8.0
START_SECONDS = 90.0
#: How often a service is spared while not all of them are up: or nothing else would ever happen.
SPARED_WHILE_STARTING = 0.85
POLL_SECONDS = 0.5

#: In one blow, JVM, database and all.
EVERYTHING = Kind("everything at once", 1, ())
DATABASE = Kind("PostgreSQL", 5, ())


class Soak:
    """One home, its processes, and the actors that want, kill and start again."""

    def __init__(self, folder: Path, seed: int, every_seconds: float, settings: str, database: Database | None) -> None:
        self.folder = folder
        self.every_seconds = every_seconds
        self.random = random.Random(seed)
        self.wants_random = random.Random(seed + 1)
        self.began = time.monotonic()
        self.home = folder / "home"
        self.home.mkdir()
        (self.home / "dagster.yaml").write_text(settings)
        (folder / "definitions.py").write_text(DEFINITIONS)
        (folder / "witness.py").write_text(WITNESS)
        (folder / "workspace.yaml").write_text("load_from:\n  - python_file: definitions.py\n")
        self.landing = folder / LANDING
        self.temporary = folder / "tmp"
        for made in (self.landing, self.temporary):
            made.mkdir()
        self.port = free_port()
        self.database = database
        self.processes = Processes(self.home, self.random)
        self.troubles: Counter[str] = Counter()
        #: What was seen on the way and must not be.
        self.violations: list[str] = []
        self.commands: Counter[str] = Counter()
        #: Requests that a command has acknowledged.
        self.acknowledged: list[str] = []
        #: By day, the values in the files that have arrived.
        self.arrived: dict[str, list[int]] = {}
        self.operations: list[str] = []
        self.builds: list[subprocess.Popen[bytes]] = []
        self.n_starts = 0
        self.dev: subprocess.Popen[bytes] | None = None
        #: When all services were there last, and whether they have been since they were started.
        self.last_complete = 0.0
        self.are_up = False
        self._closing = threading.Event()

    @cached_property
    def store(self) -> Store:
        return open_store(self.database.url if self.database else f"sqlite:///{self.home}/databuild.db")

    @cached_property
    def queries(self) -> Queries:
        return Queries(self.store)

    def say(self, what: str) -> None:
        print(f"{time.monotonic() - self.began:7.1f} s  {what}", flush=True)

    # The story

    def run(self, seconds: float) -> None:
        """Troubles for so long; afterwards all that can be mended is mended."""
        self.start_services()
        self.wait(self.answers, "the web server answers")
        # The store is made by the first command, and read here from then on.
        self.want(["want", "create", "joined@001"])
        wanting = threading.Thread(target=self.want_on, name="wants", daemon=True)
        wanting.start()
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            self.pause(self.every_seconds * self.random.uniform(0.3, 1.7))
            self.trouble()
        self._closing.set()
        self.wait(lambda: self.n_away == 0, "all is thawed and started again")
        wanting.join(MAX_SECONDS)
        self.say("no more troubles")

    def pause(self, seconds: float) -> None:
        """While the supervisor looks."""
        until = time.monotonic() + seconds
        while (left := until - time.monotonic()) > 0:
            time.sleep(min(left, POLL_SECONDS))
            self.mend()
            self.supervise()

    def wait(self, happened: Callable[[], bool], what: str, seconds: float = MAX_SECONDS) -> bool:
        until = time.monotonic() + seconds
        while not happened():
            if time.monotonic() > until:
                self.say(f"not until now: {what}")
                return False
            self.pause(POLL_SECONDS)
        return True

    # Services, and who starts them again

    @property
    def environment(self) -> dict[str, str]:
        path = os.pathsep.join(filter(None, [str(self.folder), os.environ.get("PYTHONPATH")]))
        own = {"DAGSTER_HOME": str(self.home), "PYTHONPATH": path, "TMPDIR": str(self.temporary)}
        return os.environ | own | ({"DATABUILD_DB_URL": self.database.url} if self.database else {})

    def start_services(self) -> None:
        command = [sys.executable, "-m", "databuild_dagster", "dev", "-w", "workspace.yaml", "-p", str(self.port)]
        self.n_starts += 1
        self.dev = start_server(command, folder=self.folder, environment=self.environment, log=self.folder / "dev.log")
        self.last_complete, self.are_up = time.monotonic(), False

    def supervise(self) -> None:
        """`dagster dev` ends when its daemon or web server has; without its code server it goes on, and does nothing."""
        self.builds = [build for build in self.builds if build.poll() is None]
        if self.dev is None:
            return
        if self.dev.poll() is None and all(self.processes.find(kind) for kind in SERVICES):
            self.last_complete, self.are_up = time.monotonic(), True
        silent = time.monotonic() - self.last_complete
        if self.dev.poll() is None and silent < (PATIENCE_SECONDS if self.are_up else START_SECONDS):
            return
        why = "they have ended" if self.dev.poll() is not None else f"one of them is missing for {silent:.0f} s"
        self.say(f"services are started again: {why}")
        # What a control group would do: the rest of the services goes, and what they have launched stays.
        for kind in (DEV, *SERVICES):
            self.processes.kill(kind)
        self.dev.wait(MAX_SECONDS)
        self.start_services()

    def answers(self) -> bool:
        return self.graphql("{ version }") is not None

    def graphql(self, query: str, **variables: Any) -> Any:
        """None while the web server does not answer."""
        request = urllib.request.Request(
            f"http://127.0.0.1:{self.port}/graphql",
            json.dumps({"query": query, "variables": variables}).encode(),
            {"Content-Type": "application/json"},
        )
        try:
            with urllib.request.urlopen(request, timeout=30) as response:
                return json.load(response).get("data")
        except (OSError, http.client.HTTPException, ValueError):
            return None

    # Troubles

    def trouble(self) -> None:
        """A process is killed or frozen, or all of them are killed."""
        freezes = self.n_away < MAX_FROZEN and self.random.random() < FREEZES
        spare = not self.are_up and self.random.random() < SPARED_WHILE_STARTING
        spared = (*SERVICES, EVERYTHING) if spare else (EVERYTHING,) if freezes else ()
        first, *others = shuffled(self.random, [kind for kind in (*KINDS, DATABASE, EVERYTHING) if kind not in spared])
        seconds = self.random.uniform(*FREEZE_SECONDS)
        for kind in (first, *(other for other in others if other is not EVERYTHING)):
            if hit := self.freeze(kind, seconds) if freezes else self.kill(kind):
                self.troubles[f"{kind.name} {'frozen' if freezes else 'killed'}"] += 1
                how = f"frozen for {seconds:.0f} s" if freezes else "killed"
                self.say(f"{how}: {kind.name} ({' '.join(map(str, hit))})")
                return

    @property
    def n_away(self) -> int:
        """Frozen processes, and the database that is frozen or killed."""
        return len(self.processes.frozen) + (self.database is not None and not self.database.is_well)

    def kill(self, kind: Kind) -> list[int]:
        """SIGKILL; the processes that got it."""
        killed = (
            []
            if kind is DATABASE
            else self.processes.kill(None if kind is EVERYTHING else kind, all_of_them=kind is EVERYTHING)
        )
        if kind in (DATABASE, EVERYTHING) and self.database is not None and self.database.is_well:
            killed.append(self.database.kill(self.random.uniform(0.0, AWAY_SECONDS)))
        return killed

    def freeze(self, kind: Kind, seconds: float) -> list[int]:
        """SIGSTOP for longer than a lease and than a client's patience; the processes that got it."""
        if kind is not DATABASE:
            return self.processes.freeze(kind, seconds)
        if self.database is None or not self.database.is_well:
            return []
        return [self.database.freeze(seconds)]

    def mend(self) -> None:
        for freeze in self.processes.thaw():
            self.say(f"thawed: {freeze.kind.name} ({freeze.pid})")
        if self.database is not None and self.database.mend():
            self.say(f"{DATABASE.name} is back")

    # Wanting

    def want_on(self) -> None:
        """Commands, one after another, until the troubles end."""
        while not self._closing.is_set():
            try:
                self.want_something(self.wants_random)
            except StoreUnusable:
                # The database is away.
                pass
            except Exception as error:
                self.violations.append(f"the wants ended by {error!r}")
                raise
            self._closing.wait(self.wants_random.uniform(0.5, 2.0))

    def want_something(self, choose: random.Random) -> None:
        if sum(len(want.refs) for want in self.queries.wants.newest(WantFilter(open_only=True))) > MAX_OPEN:
            return
        what = choose.random()
        if what < 0.10:
            self.press_materialize(*self._some_refs(choose, 1))
        elif what < 0.20:
            self.let_a_file_arrive(choose)
        elif what < 0.25:
            self.start_operation()
        elif what < 0.60:
            self.want(["want", "create", *self._some_refs(choose, 4)])
        elif what < 0.85:
            self.start_build(self._some_refs(choose, 2))
        elif live := self._live_refs():
            ref = choose.choice(live)
            if what < 0.93:
                self.start_build([ref, "--rebuild"])
            else:
                # A want for it is still open, so it is rebuilt.
                self.want(["taint", ref, "--reason", "to see it built again"], gives_request=False)

    def let_a_file_arrive(self, choose: random.Random) -> None:
        """Often for a day that is recorded already: the lot grows by it."""
        day = choose.choice(ARRIVALS)
        values = self.arrived.setdefault(day, [])
        value = sum(map(len, self.arrived.values()))
        unfinished = self.landing / f".{value}"
        pq.write_table(pa.table({"value": [value]}), unfinished)
        unfinished.rename(self.landing / f"{day.replace('-', '')}-{value}.parquet")
        values.append(value)
        self.commands["file"] += 1

    def start_operation(self) -> None:
        """One at a time: a second one of the type is refused."""
        code, answer = self.command("operation", "list")
        if code == 0 and not answer:
            code, answer = self.command("operation", "run", "count", "raw", "--no-wait")
            self.commands["operation run"] += 1
            if code == 0:
                self.operations.append(answer["operation"])

    def _some_refs(self, choose: random.Random, most: int) -> list[Ref]:
        n = choose.randint(1, most)
        asset = choose.choice(["joined", "scored", "scored", "clean"])
        first = choose.randrange(N_KEYS - n)
        return [make_ref(asset, f"{first + number:03}") for number in range(n)]

    def _live_refs(self) -> list[str]:
        return [live_instance.ref for asset in ("raw", "clean") for live_instance in self.queries.instances.live(asset)]

    def want(self, arguments: Sequence[str], *, gives_request: bool = True) -> None:
        """A command that is over in a moment, unless it is killed."""
        code, out = self.command(*arguments)
        self.commands[" ".join(arguments[: 2 if arguments[0] == "want" else 1])] += 1
        if code == 0 and gives_request:
            self.acknowledged += {line["request_id"] for line in out}

    def press_materialize(self, ref: Ref) -> None:
        """What the button sends; whether it got through is for Dagster to say."""
        answer = self.graphql(LAUNCH, params=launch_params(asset_of(ref), [partition_key_of(ref)]))
        pressed = answer is not None and answer["launchPipelineExecution"]["__typename"] == "LaunchRunSuccess"
        self.commands["Materialize" if pressed else "Materialize, unanswered"] += 1

    def start_build(self, arguments: Sequence[str]) -> None:
        if len(self.builds) >= MAX_BUILDS:
            return
        self.commands["build --rebuild" if "--rebuild" in arguments else "build"] += 1
        with (self.folder / "build.log").open("ab") as log:
            self.builds.append(
                subprocess.Popen(
                    [sys.executable, "-m", "databuild_dagster", "build", *arguments],
                    cwd=self.folder,
                    env=self.environment,
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=subprocess.STDOUT,
                    start_new_session=True,
                )
            )

    def command(self, *arguments: str) -> tuple[int, Any]:
        """What it ended with, and what it said."""
        try:
            done = subprocess.run(
                [sys.executable, "-m", "databuild_dagster", *arguments, "--json"],
                cwd=self.folder,
                env=self.environment,
                capture_output=True,
                text=True,
                timeout=MAX_SECONDS,
                check=False,
            )
        except subprocess.TimeoutExpired:
            self.violations.append(f"databuild {' '.join(arguments)} did not end within {MAX_SECONDS:.0f} s")
            return -1, None
        if done.returncode not in (0, -signal.SIGKILL):
            self.say(f"{' '.join(arguments)} ended with {done.returncode}: {(done.stderr or done.stdout)[-500:]}")
        with suppress(ValueError, IndexError):
            return done.returncode, json.loads(done.stdout.splitlines()[-1])
        return done.returncode, None

    # The end

    def stop(self) -> list[str]:
        """As a person does it: Ctrl-C for the services, and `databuild spark --stop`. Returns all that is left."""
        dev, self.dev = self.dev, None
        if dev is not None:
            os.killpg(dev.pid, signal.SIGINT)
            dev.wait(MAX_SECONDS)
        self.command("spark", "--stop")
        self.store.close()

        def left() -> list[str]:
            processes = [f"process {pid} is left" for pid in processes_of(self.home)]
            folders = [f"folder {path} is left" for path in sorted(self.temporary.glob("databuild-*"))]
            sessions = [f"session {name} is left" for name in self.database.server.sessions()] if self.database else []
            return [*processes, *folders, *sessions]

        self.wait(lambda: not left(), "nothing is left")
        return left()

    def clear_up(self) -> None:
        """All that was started here ends, also if the soak failed."""
        self._closing.set()
        self.dev = None
        kill_processes_of(self.home)
        if self.database is not None:
            self.database.stop()
