"""Every kind of process is killed, again and again, while wants come in; at the end nothing is lost and nothing was built twice.

    python -m bench.soak --minutes N --seed S [--every SECONDS] [--coordinator] [--keep]

A home of its own, `databuild dev` as people run it, and a small project on Spark: a chain with dep misses at run time and a
batched asset. Wants come by the command line all the time, and a user presses Materialize. Every few seconds one of
these dies by SIGKILL, or all of them at once: the run worker, the daemon, the web server, the code server (Dagster's
proxy of it, or the process that has the code), the Spark server, a `databuild build`. A supervisor as any deployment has
one starts again what has died.

Then the kills stop, and the wants have some minutes to end. What is asked at the end: every want that was acknowledged has
ended Successful, or has Failed of three attempts that were lost (what fails so is retried, and must be live then); no ref
was built twice at the same time, nor again after it was done without anybody having said that it was wrong; what is read is
right, and shown by Dagster; `databuild log check --deep` finds nothing; of what was killed nothing is left: no folder, no Spark
server, no Dagster run that goes on for ever.

The story of the kills is printed as it goes, the table after it. Exit code 1 when anything is wrong. What is random follows
from the seed; what the processes make of it does not.
"""

import argparse
import http.client
import json
import os
import random
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

from databuild_dagster.model import events as e
from databuild_dagster.model.refs import Ref, asset_of, derive_partition_uuid, make_ref, partition_key_of
from databuild_dagster.model.states import InstanceState, JobRunState, WantState
from databuild_dagster.store.queries.queries import Queries
from databuild_dagster.store.queries.wants import WantFilter
from databuild_dagster.store.store import open_store

SETTINGS = "telemetry: {enabled: false}\n"
COORDINATOR = f"{SETTINGS}run_coordinator: {{module: databuild_dagster, class: DatabuildRunCoordinator}}\n"

DEFINITIONS = """
import dagster as dg
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from databuild_dagster import BuildContext, DatabuildSpark, build_definitions, databuild_asset
from witness import witnessed

keys = dg.StaticPartitionsDefinition([f"{number:03}" for number in range(150)])


@databuild_asset(partitions_def=keys)
def raw(context: BuildContext, spark: SparkSession) -> DataFrame:
    with witnessed(context):
        return spark.range(10).select((F.col("id") * int(context.partition_key)).alias("value"))


@databuild_asset(partitions_def=keys)
def clean(raw: DataFrame, context: BuildContext) -> DataFrame:
    with witnessed(context):
        assert raw.count() == 10
        return raw.where("value % 2 = 0")


@databuild_asset(partitions_def=keys, batched=True)
def scored(clean: DataFrame, context: BuildContext) -> DataFrame:
    with witnessed(context):
        return clean.groupBy("partition_key").agg(F.sum("value").alias("score"))


@databuild_asset(partitions_def=keys)
def joined(clean: DataFrame, context: BuildContext) -> DataFrame:
    # Which neighbour it reads cannot be known before.
    neighbour = context.read(f"raw@{(int(context.partition_key) + 75) % 150:03}")
    with witnessed(context):
        return clean.union(neighbour).agg(F.sum("value").alias("total"))


spark = DatabuildSpark(spark_config={"spark.driver.memory": "1g", "spark.sql.shuffle.partitions": "2"})
defs = build_definitions([raw, clean, scored, joined], location="soak", spark=spark)
"""

#: What the assets' functions leave behind; a line is one write, so that processes do not mix theirs.
WITNESS = '''
"""A line when a call of an asset's function begins and one when it ends; one more where two live processes meet."""

import os
import time
import uuid
from contextlib import contextmanager
from pathlib import Path

LINES = Path(__file__).with_name("witness.log")


def tell(*words):
    with open(LINES, "ab", buffering=0) as file:
        file.write((" ".join(map(str, words)) + "\\n").encode())


def began(pid):
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None
    return None if fields[0] in "ZX" else fields[19]


@contextmanager
def witnessed(context):
    call, me = uuid.uuid4(), os.getpid()
    refs = [str(ref) for ref in context.refs]
    before = [line.split() for line in LINES.read_text().splitlines()] if LINES.exists() else []
    ended = {line[2] for line in before if line[0] == "end"}
    for what, ref, other, pid, since, *_ in before:
        if what == "start" and ref in refs and other not in ended and began(int(pid)) == since:
            tell("met", ref, call, me, began(me), time.time())
    for ref in refs:
        tell("start", ref, call, me, began(me), time.time())
    try:
        # Long enough to be hit in the middle of it.
        time.sleep(1.0)
        yield
    finally:
        for ref in refs:
            tell("end", ref, call, me, began(me), time.time())
'''

_LAUNCH = """mutation($params: ExecutionParams!) { launchPipelineExecution(executionParams: $params) { __typename } }"""

#: The most wanted refs that are open at once: more would only queue.
MAX_OPEN = 15
#: `databuild build` processes at once.
MAX_BUILDS = 2
N_KEYS = 150
#: Nothing that is waited for takes longer, two cores under load included.
MAX_SECONDS = 240.0
#: Until all wants have ended after the last kill: a launch that was silent for minutes is among them.
END_SECONDS = 900.0
#: How long a service may be missing before the supervisor starts all of them again, and how long all have to come up.
PATIENCE_SECONDS = 8.0
START_SECONDS = 90.0
#: How often a service is spared while not all of them are up: or nothing else would ever happen.
SPARED_WHILE_STARTING = 0.85
POLL_SECONDS = 0.5


class Kind(NamedTuple):
    """One kind of process, how often it is chosen, and the words by which it is known."""

    name: str
    weight: int
    words: tuple[str, ...]


RUN_WORKER, DAEMON, WEB, PROXY, CODE, SPARK, COMMAND = KINDS = (
    Kind("run worker", 10, ("multiprocessing.spawn",)),
    Kind("daemon", 2, ("dagster._daemon",)),
    Kind("web server", 1, ("dagster_webserver",)),
    Kind("code server's proxy", 1, ("code-server", "start")),
    Kind("code server", 3, ("api", "grpc")),
    Kind("Spark server", 5, ("SparkConnectServer",)),
    Kind("command line", 6, ("databuild_dagster",)),
)
SERVICES = (DAEMON, WEB, PROXY, CODE)
DEV = Kind("dagster dev", 0, ("dagster", "dev"))
#: In one blow, JVM and all.
EVERYTHING = Kind("everything at once", 1, ())


@dataclass
class Found:
    """The violations, and the rows to print."""

    violations: list[str] = field(default_factory=list)
    rows: list[tuple[str, str]] = field(default_factory=list)


def main() -> None:
    parser = argparse.ArgumentParser(description="Kill everything, and see that nothing is lost.")
    parser.add_argument("--minutes", type=float, default=5.0, help="of killing; the end takes a few more")
    parser.add_argument("--seed", type=int, default=None, help="of what is random here; by default a new one")
    parser.add_argument("--every", type=float, default=10.0, help="seconds between kills, on average")
    parser.add_argument("--coordinator", action="store_true", help="with DatabuildRunCoordinator")
    parser.add_argument("--keep", action="store_true", help="leave the folder where it is")
    options = parser.parse_args()
    seed = random.SystemRandom().randrange(1_000_000) if options.seed is None else options.seed
    folder = Path(tempfile.mkdtemp(prefix="databuild-soak-"))
    # The end of this process ends what it has started.
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))
    soak = Soak(folder, seed, options.every, COORDINATOR if options.coordinator else SETTINGS)
    print(f"Seed {seed}, {options.minutes:g} minutes, in {folder}", flush=True)
    try:
        found = soak.run(options.minutes * 60)
    finally:
        soak.clear_up()
    print("\n| what | |\n|---|---|")
    for what, value in found.rows:
        print(f"| {what} | {value} |")
    for violation in found.violations:
        print(f"WRONG: {violation}")
    if found.violations or options.keep:
        print(f"Everything is in {folder}; seed {seed}.")
    else:
        shutil.rmtree(folder, ignore_errors=True)
    sys.exit(1 if found.violations else 0)


class Soak:
    """One home, its processes, and the actors that want, kill and start again."""

    def __init__(self, folder: Path, seed: int, every_seconds: float, settings: str) -> None:
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
        self.port = free_port()
        self.kills: Counter[str] = Counter()
        self.commands: Counter[str] = Counter()
        #: Requests that a command has acknowledged.
        self.acknowledged: list[str] = []
        self.builds: list[subprocess.Popen[bytes]] = []
        self.n_starts = 0
        self.dev: subprocess.Popen[bytes] | None = None
        #: When all services were there last, and whether they have been since they were started.
        self.last_complete = 0.0
        self.are_up = False
        self._closing = threading.Event()

    @cached_property
    def queries(self) -> Queries:
        return Queries(open_store(f"sqlite:///{self.home}/databuild.db"))

    def say(self, what: str) -> None:
        print(f"{time.monotonic() - self.began:7.1f} s  {what}", flush=True)

    # The story

    def run(self, seconds: float) -> Found:
        self.start_services()
        self.wait(self.answers, "the web server answers")
        # The store is made by the first command, and read here from then on.
        self.want(["want", "create", "joined@001"])
        wanting = threading.Thread(target=self.want_on, name="wants", daemon=True)
        wanting.start()
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            self.pause(self.every_seconds * self.random.uniform(0.3, 1.7))
            self.kill_something()
        self._closing.set()
        wanting.join(MAX_SECONDS)
        self.say("no more kills")
        return self.end()

    def pause(self, seconds: float) -> None:
        """While the supervisor looks."""
        until = time.monotonic() + seconds
        while (left := until - time.monotonic()) > 0:
            time.sleep(min(left, POLL_SECONDS))
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
        return os.environ | {"DAGSTER_HOME": str(self.home), "PYTHONPATH": path}

    def start_services(self) -> None:
        command = [sys.executable, "-m", "databuild_dagster", "dev", "-w", "workspace.yaml", "-p", str(self.port)]
        self.n_starts += 1
        with (self.folder / "dev.log").open("ab") as log:
            self.dev = subprocess.Popen(
                command,
                cwd=self.folder,
                env=self.environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        self.last_complete, self.are_up = time.monotonic(), False

    def supervise(self) -> None:
        """`dagster dev` ends when its daemon or web server has; without its code server it goes on, and does nothing."""
        self.builds = [build for build in self.builds if build.poll() is None]
        if self.dev is None:
            return
        if self.dev.poll() is None and all(self.processes(kind) for kind in SERVICES):
            self.last_complete, self.are_up = time.monotonic(), True
        silent = time.monotonic() - self.last_complete
        if self.dev.poll() is None and silent < (PATIENCE_SECONDS if self.are_up else START_SECONDS):
            return
        why = "they have ended" if self.dev.poll() is not None else f"one of them is missing for {silent:.0f} s"
        self.say(f"services are started again: {why}")
        # What a control group would do: the rest of the services goes, and what they have launched stays.
        for kind in (DEV, *SERVICES):
            self.kill(kind)
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

    # Killing

    def processes(self, kind: Kind | None = None) -> list[int]:
        """What was started here, directly or not: only that knows this home."""
        mark = f"DAGSTER_HOME={self.home}\0".encode()
        found = []
        for entry in os.listdir("/proc"):
            if not entry.isdigit():
                continue
            with suppress(OSError):
                if mark not in Path(f"/proc/{entry}/environ").read_bytes() + b"\0":
                    continue
                words = Path(f"/proc/{entry}/cmdline").read_bytes().decode(errors="replace")
                if kind_of(words) is not None and kind in (None, kind_of(words)):
                    found.append(int(entry))
        return found

    def kill_something(self) -> None:
        spare = not self.are_up and self.random.random() < SPARED_WHILE_STARTING
        first, *others = _shuffled(
            self.random, [kind for kind in (*KINDS, EVERYTHING) if not (spare and kind in (*SERVICES, EVERYTHING))]
        )
        for kind in (first, *(other for other in others if other is not EVERYTHING)):
            killed = self.kill(None if kind is EVERYTHING else kind, all_of_them=kind is EVERYTHING)
            if killed:
                self.kills[kind.name] += 1
                pids = " ".join(map(str, killed))
                self.say(f"killed: {kind.name} ({pids})")
                return

    def kill(self, kind: Kind | None, *, all_of_them: bool = True) -> list[int]:
        """SIGKILL for all of a kind, or for one of them; those that were hit."""
        pids = self.processes(kind)
        if pids and not all_of_them:
            pids = [self.random.choice(sorted(pids))]
        return [pid for pid in pids if self._killed(pid)]

    def _killed(self, pid: int) -> bool:
        # By a descriptor: between the look and the blow the id may have become another's.
        with suppress(OSError):
            descriptor = os.pidfd_open(pid)
            try:
                if f"DAGSTER_HOME={self.home}".encode() in Path(f"/proc/{pid}/environ").read_bytes():
                    signal.pidfd_send_signal(descriptor, signal.SIGKILL)
                    return True
            finally:
                os.close(descriptor)
        return False

    # Wanting

    def want_on(self) -> None:
        """Commands, one after another, until the kills end."""
        choose = self.wants_random
        while not self._closing.is_set():
            if sum(len(want.refs) for want in self.queries.wants(WantFilter(open_only=True))) > MAX_OPEN:
                self._closing.wait(POLL_SECONDS)
                continue
            what = choose.random()
            if what < 0.15:
                self.press_materialize(*self._some_refs(choose, 1))
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
            self._closing.wait(choose.uniform(0.5, 2.0))

    def _some_refs(self, choose: random.Random, most: int) -> list[Ref]:
        n = choose.randint(1, most)
        asset = choose.choice(["joined", "scored", "scored", "clean"])
        first = choose.randrange(N_KEYS - n)
        return [make_ref(asset, f"{first + number:03}") for number in range(n)]

    def _live_refs(self) -> list[str]:
        return [live_instance.ref for asset in ("raw", "clean") for live_instance in self.queries.live_instances(asset)]

    def want(self, arguments: Sequence[str], *, gives_request: bool = True) -> None:
        """A command that is over in a moment, unless it is killed."""
        code, out = self.command(*arguments)
        self.commands[" ".join(arguments[: 2 if arguments[0] == "want" else 1])] += 1
        if code == 0 and gives_request:
            self.acknowledged += {line["request_id"] for line in out}

    def press_materialize(self, ref: Ref) -> None:
        """What the button sends; whether it got through is for Dagster to say."""
        asset, key = asset_of(ref), partition_key_of(ref)
        selector = {
            "repositoryLocationName": "definitions.py",
            "repositoryName": "__repository__",
            "pipelineName": "__ASSET_JOB",
            "assetSelection": [{"path": [asset]}],
            "assetCheckSelection": [],
        }
        metadata = {"tags": [{"key": "dagster/partition", "value": key}]}
        params = {"selector": selector, "mode": "default", "executionMetadata": metadata, "runConfigData": "{}"}
        answer = self.graphql(_LAUNCH, params=params)
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
        done = subprocess.run(
            [sys.executable, "-m", "databuild_dagster", *arguments, "--json"],
            cwd=self.folder,
            env=self.environment,
            capture_output=True,
            text=True,
            timeout=MAX_SECONDS,
            check=False,
        )
        if done.returncode not in (0, -signal.SIGKILL):
            self.say(f"{' '.join(arguments)} ended with {done.returncode}: {(done.stderr or done.stdout)[-500:]}")
        with suppress(ValueError, IndexError):
            return done.returncode, json.loads(done.stdout.splitlines()[-1])
        return done.returncode, None

    # The end

    def end(self) -> Found:
        found = Found()
        began = time.monotonic()
        n_retried = self._retry_until_ended(found)
        seconds = time.monotonic() - began
        wants = self._wants()
        found.rows += [
            ("kills", ", ".join(f"{name} {n}" for name, n in self.kills.most_common())),
            ("kills in all", str(self.kills.total())),
            ("services started", str(self.n_starts)),
            ("commands", ", ".join(f"{name} {n}" for name, n in self.commands.most_common())),
            ("wants", ", ".join(f"{state} {n}" for state, n in Counter(want.state.value for want in wants).items())),
            ("all wants ended after the last kill", f"{seconds:.0f} s"),
            ("refs that used up three attempts, and were retried", str(n_retried)),
        ]
        self._check_wants(found, wants)
        self._check_builds(found)
        self._check_data(found)
        self._check_store(found)
        self._check_remains(found)
        self._check_dagster(found)
        found.rows.append(("violations", str(len(found.violations))))
        return found

    def _retry_until_ended(self, found: Found) -> int:
        """As an operator would with what was killed three times: no kill hits it now."""
        retried: set[str] = set()
        for _ in range(3):
            if not self.wait(
                lambda: not self.queries.wants(WantFilter(open_only=True)), "all wants have ended", END_SECONDS
            ):
                found.violations += [
                    f"want {want.id} of {', '.join(want.refs)} is {want.state.value}: {self._explained(want.refs[0])}"
                    for want in self.queries.wants(WantFilter(open_only=True))
                ]
                break
            failed = [ref for ref, state in self._states().items() if state is InstanceState.FAILED]
            if not failed:
                break
            retried.update(failed)
            for ref in failed:
                self.command("retry", ref)
        return len(retried)

    def _explained(self, ref: str) -> str:
        return json.dumps(self.command("explain", ref)[1])

    def _wants(self) -> list[Any]:
        return self.queries.wants(most=1_000_000)

    def _states(self) -> dict[Ref, InstanceState | None]:
        refs = {event_ref for want in self._wants() for event_ref in want.refs}
        return self.queries.states(refs)

    def _check_wants(self, found: Found, wants: Sequence[Any]) -> None:
        known = {want.request_id for want in wants}
        found.violations += [
            f"request {item} was acknowledged and is not there" for item in self.acknowledged if item not in known
        ]
        found.rows.append(("requests acknowledged", str(len(self.acknowledged))))
        states = self._states()
        found.violations += [
            f"{ref} is {'missing' if state is None else state.value} in the end"
            for ref, state in states.items()
            if state is not InstanceState.LIVE
            and any(ref in want.refs and want.state is not WantState.CANCELED for want in wants)
        ]
        for want in wants:
            if want.state is WantState.CANCELED and want.source != "job run":
                found.violations.append(f"want {want.id} is Canceled, and it was not canceled")
            if want.state is WantState.EXPIRED:
                found.violations.append(f"want {want.id} is Expired")
        # Hard failures have no excuse.
        for run in self._job_runs():
            if run.state is JobRunState.FAILED and not _of_a_kill(run.error or ""):
                found.violations.append(f"job run {run.id} of {', '.join(run.refs)} failed: {(run.error or '')[:300]}")

    def _job_runs(self) -> list[Any]:
        return self.queries.job_runs(most=1_000_000)

    def _check_builds(self, found: Found) -> None:
        """A ref becomes live once, and once more for every time that it was tainted."""
        tainted: Counter[str] = Counter()
        for event in self._events():
            if isinstance(event.fact, e.TaintCreated):
                tainted.update(event.fact.refs)
        live: Counter[str] = Counter(
            ref for run in self._job_runs() if run.state is JobRunState.SUCCEEDED for ref in run.refs
        )
        found.violations += [
            f"{ref} was built {n} times and tainted {tainted[ref]} times"
            for ref, n in live.items()
            if n > 1 + tainted[ref]
        ]
        lines = [line.split() for line in (self.folder / "witness.log").read_text().splitlines()]
        started = Counter(line[1] for line in lines if line[0] == "start")
        found.violations += [
            f"{line[1]} was built by two at once, seen by {line[3]} at {line[5]}" for line in lines if line[0] == "met"
        ]
        states = Counter(run.state.value for run in self._job_runs())
        found.rows += [
            ("refs live", str(len(live))),
            ("job runs", ", ".join(f"{state} {n}" for state, n in states.most_common())),
            ("builds that became live", str(live.total())),
            ("calls begun", str(started.total())),
            ("calls repeated, for one was killed", str(started.total() - live.total())),
        ]

    def _events(self) -> Iterator[e.Event]:
        seq = 0
        while page := self.queries.events(seq):
            yield from page
            seq = page[-1].seq

    def _check_data(self, found: Found) -> None:
        live = {entry.ref: entry.manifest_uri for entry in self._live()}
        import pyarrow.parquet as pq

        for ref, manifest in live.items():
            assert manifest is not None
            table = pq.read_table([str(path) for path in Path(manifest).parent.glob("*.parquet")])
            rows = sorted(table.column(0).to_pylist())
            if rows != expected(ref):
                found.violations.append(f"{ref} reads as {rows[:20]}, not as {expected(ref)[:20]}")
        found.rows.append(("refs read back", str(len(live))))

    def _check_store(self, found: Found) -> None:
        code, answer = self.command("log", "check", "--deep")
        if code != 0:
            found.violations.append(f"check --deep: {json.dumps(answer)[:2000]}")
        found.rows.append(("check --deep", "clean" if code == 0 else "not clean"))

    def _check_remains(self, found: Found) -> None:
        """Of what was killed nothing is left, a few ticks later."""

        def left() -> list[str]:
            return [*self._folders_left(), *self._servers_left(), *self._dagster_runs_left()]

        self.wait(lambda: not left(), "nothing is left", MAX_SECONDS)
        remains = left()
        found.violations += remains[:20]
        found.rows += [
            ("remains", str(len(remains))),
            ("Dagster runs of people that died before they asked", str(len(self._dagster_runs_unfinished()))),
        ]

    def _check_dagster(self, found: Found) -> None:
        """Dagster shows as materialized what is live, by the instance that is."""
        from dagster import AssetKey, AssetRecordsFilter, DagsterInstance

        unreported = []
        with DagsterInstance.from_config(str(self.home)) as instance:
            for live in self._live():
                of_ref = AssetRecordsFilter(AssetKey(asset_of(live.ref)), [partition_key_of(live.ref) or ""])
                records = instance.fetch_materializations(of_ref, limit=1).records
                answer = records[0].asset_materialization if records else None
                if answer is None or live.uuid not in (answer.tags or {}).values():
                    unreported.append(f"{live.ref} is live by {live.uuid}, and Dagster did not get it")
        found.violations += unreported
        found.rows.append(("live and not reported to Dagster", str(len(unreported))))

    def _live(self) -> list[Any]:
        return [
            live_instance
            for asset in ("raw", "clean", "scored", "joined")
            for live_instance in self.queries.live_instances(asset)
        ]

    def _folders_left(self) -> list[str]:
        warehouse = self.home / "warehouse"
        staging = [f"staging folder {path.name} is left" for path in (warehouse / ".staging").glob("*")]
        # What was live once stays until it is removed on purpose, also when another instance is canonical.
        kept = {
            derive_partition_uuid(run.id, ref)
            for run in self._job_runs()
            if run.state in (JobRunState.SUCCEEDED, JobRunState.QUEUED, JobRunState.RUNNING)
            for ref in run.refs
        }
        instances = [
            f"{path.relative_to(warehouse)} is left, which was never live"
            for path in warehouse.glob("*/data/instance=*")
            if path.name.removeprefix("instance=") not in kept
        ]
        return staging + instances

    def _servers_left(self) -> list[str]:
        servers = self.processes(SPARK)
        return [f"{len(servers)} Spark servers run: {servers}"] if len(servers) > 1 else []

    def _dagster_runs_left(self) -> list[str]:
        """Of what is ours to end: launches, and what is held. Who pressed a button in vain is asked elsewhere."""
        return [
            f"Dagster run {run.run_id} is {run.status.value} for ever"
            for run in self._dagster_runs_unfinished()
            if "databuild/launch" in run.tags or run.tags.get("databuild/hold") == "true"
        ]

    def _dagster_runs_unfinished(self) -> list[Any]:
        from dagster import DagsterInstance

        with DagsterInstance.from_config(str(self.home)) as instance:
            return [run for run in instance.get_runs() if not run.is_finished]

    def clear_up(self) -> None:
        self._closing.set()
        self.dev = None
        for _ in range(20):
            if not self.kill(None):
                return
            time.sleep(POLL_SECONDS)


def kind_of(command_line: str) -> Kind | None:
    """Which kind of process it is; None for helpers of others, which end with them."""
    words = command_line.split("\0")
    for kind in (*KINDS, DEV):
        if all(any(word == item or (len(kind.words) == 1 and item in word) for word in words) for item in kind.words):
            return kind
    return None


def _shuffled(choose: random.Random, kinds: Sequence[Kind]) -> list[Kind]:
    """By weight; those that follow are for when nothing of the first kind runs."""
    return sorted(kinds, key=lambda kind: choose.random() ** (1.0 / kind.weight), reverse=True)


def _of_a_kill(error: str) -> bool:
    return any(word in error for word in ("lost", "Spark", "server", "gone", "UNAVAILABLE", "Connection"))


def expected(ref: Ref) -> list[int]:
    """The first column of what a ref is to hold, sorted."""

    def raw(key: int) -> list[int]:
        return [number * key for number in range(10)]

    def clean(key: int) -> list[int]:
        return [value for value in raw(key) if value % 2 == 0]

    key = int(partition_key_of(ref) or "")
    match asset_of(ref):
        case "raw":
            return raw(key)
        case "clean":
            return clean(key)
        case "scored":
            return [sum(clean(key))]
        case _:
            return [sum(clean(key)) + sum(raw((key + 75) % N_KEYS))]


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port: int = listener.getsockname()[1]
        return port


if __name__ == "__main__":
    main()
