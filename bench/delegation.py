"""What it costs that nothing is built twice: the coordinator's answers, the guard in the step, and what plain Dagster takes.

    python -m bench.delegation [--rounds N] [--days N] [--at-once N] [--multi-run N] [--only PART …]

- answer: a request for what is live, sent as the Materialize button does it, against the same request when it is to be built,
  by one web server and daemon (`databuild dev`) with the coordinator.
- at-once: requests for one partition, at once through two doors, the button and backfills: how many build, how many delegate.
- check: 1,000 refs checked for delegation, in the engine alone.
- guard: what our asset takes over a plain one that writes the same file, for one partition and for many, Dagster's own
  writes apart; of it what the store takes, which is the guard.
- year: a request for all days through the UI's API until all are green, against Dagster's own backfills of the same work.
  Multi-run is measured on `--multi-run` days and given per day, for a year of it takes a quarter of an hour.

Prints Markdown, for docs/performance.md. It takes about five minutes on two idle cores.
"""

import argparse
import functools
import itertools
import json
import os
import shutil
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time
import urllib.error
import urllib.request
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from datetime import date, timedelta
from pathlib import Path
from typing import Any, NamedTuple

from bench.engine.filling import MANIFEST, AnyPartition
from bench.timed_build import EVENT_LOG_WRITES, RUN_WRITES, Clock
from databuild_dagster.engine.engine import Engine
from databuild_dagster.engine.holders import new_id, this_process
from databuild_dagster.model.commands import ClaimRefs, RegisterDatasets, SucceedJobRuns
from databuild_dagster.model.coordination import ANSWERS, Answer
from databuild_dagster.model.datasets import DatasetSpec
from databuild_dagster.model.events import BufferedRun, OutputFact, RunSuccess
from databuild_dagster.model.refs import Ref, partition_key_of
from databuild_dagster.model.states import InstanceState
from databuild_dagster.store.ledger import Ledger
from databuild_dagster.store.queries.asking import Asking
from databuild_dagster.store.queries.queries import Queries
from databuild_dagster.store.store import open_store
from tests.support.materialize_button import LAUNCH, launch_params

PARTS = ("check", "guard", "answer", "at-once", "year")
#: Refs of one check.
N_CHECKED = 1_000
#: Partitions of the larger run that measures the guard.
N_GUARDED = 100
#: Nothing that is waited for here takes longer.
MAX_SECONDS = 600.0
POLL_SECONDS = 0.05
#: Where each look is work for the web server, and takes seconds anyway.
SLOW_POLL_SECONDS = 0.5

SETTINGS = """
telemetry: {enabled: false}
run_coordinator: {module: databuild_dagster, class: DatabuildRunCoordinator, config: {dequeue_interval_seconds: 1}}
"""

DEFINITIONS = """
import os
import threading
from pathlib import Path

import dagster as dg
import pandas as pd

from databuild_dagster import BuildContext, build_definitions, databuild_asset

HERE = Path(__file__).parent
daily = dg.DailyPartitionsDefinition("2000-01-01", end_date="2014-01-01")


def rows_of(day):
    return pd.DataFrame({"day": [day] * 1000, "n": range(1000)})


@databuild_asset(partitions_def=daily)
def ours(context: BuildContext) -> pd.DataFrame:
    return rows_of(context.partition_key)


@databuild_asset(partitions_def=daily)
def wanted_at_once(context: BuildContext) -> pd.DataFrame:
    pause = threading.Event()
    for _ in range(6000):
        if (HERE / "open").exists():
            break
        pause.wait(0.1)
    return rows_of(context.partition_key)


@databuild_asset(partitions_def=daily)
def year(context: BuildContext) -> pd.DataFrame:
    return rows_of(context.partition_key)


def written(asset, day):
    folder = HERE / "plain" / asset
    folder.mkdir(parents=True, exist_ok=True)
    rows_of(day).to_parquet(folder / f"{day}.parquet", index=False)


@dg.asset(partitions_def=daily, backfill_policy=dg.BackfillPolicy.single_run())
def plain_single_run(context: dg.AssetExecutionContext) -> None:
    for day in context.partition_keys:
        written("single", day)


@dg.asset(partitions_def=daily)
def plain_multi_run(context: dg.AssetExecutionContext) -> None:
    written("multi", context.partition_key)


assets = [ours, wanted_at_once, year, plain_single_run, plain_multi_run]
defs = build_definitions(assets, location="bench")
"""

_BACKFILL = """mutation($params: LaunchBackfillParams!) { launchPartitionBackfill(backfillParams: $params) {
    __typename ... on LaunchBackfillSuccess { backfillId } ... on PythonError { message } } }"""
_RUN = """query($id: ID!) { runOrError(runId: $id) { ... on Run { status stats { ... on RunStatsSnapshot { launchTime } } } } }"""
_RUNS = """query($filter: RunsFilter) { runsOrError(filter: $filter) { ... on Runs { results {
    runId status stats { ... on RunStatsSnapshot { launchTime } } } } } }"""
_GREEN = """query($key: AssetKeyInput!) { assetNodeOrError(assetKey: $key) { ... on AssetNode {
    partitionStats { numMaterialized } } } }"""


class Row(NamedTuple):
    """One line of the table."""

    what: str
    value: str


def main() -> None:
    parser = argparse.ArgumentParser(description="What delegation costs, and saves.")
    parser.add_argument("--rounds", type=int, default=5, help="of each request that is answered or built")
    parser.add_argument("--days", type=int, default=365, help="of the long request")
    parser.add_argument("--at-once", type=int, default=50, help="requests for one partition at once")
    parser.add_argument("--multi-run", type=int, default=12, help="days of Dagster's multi-run backfill")
    parser.add_argument("--only", nargs="+", choices=PARTS, default=PARTS, help="parts to measure")
    options = parser.parse_args()

    rows: list[Row] = []
    if "check" in options.only:
        rows += of_check()
    if "guard" in options.only:
        rows += of_guard()
    if {"answer", "at-once", "year"} & set(options.only):
        with Server.started() as server:
            if "answer" in options.only:
                rows += of_answer(server, options.rounds)
            if "at-once" in options.only:
                rows += of_many_at_once(server, options.at_once)
            if "year" in options.only:
                rows += of_year(server, options.days, options.multi_run)
    print("| what | measured |\n|---|---|")
    for row in rows:
        print(f"| {row.what} | {row.value} |")


# The engine alone


def of_check(rounds: int = 20) -> list[Row]:
    """1,000 live refs of one job: looked at, and claimed."""
    with tempfile.TemporaryDirectory(prefix="databuild-bench-") as folder:
        engine = Engine(open_store(f"sqlite:///{folder}/databuild.db"), AnyPartition())
        engine.handle(RegisterDatasets(location="bench", datasets=(DatasetSpec(asset="a", job="a", location="bench"),)))
        refs = [Ref(f"a@{number}") for number in range(N_CHECKED)]
        claimed = engine.handle(_claim(refs, may_build=True)).claim
        assert claimed is not None
        facts = {
            ref: RunSuccess(job_run, (OutputFact(ref=ref, manifest=MANIFEST),))
            for ref, job_run in claimed.build.items()
        }
        engine.handle(SucceedJobRuns(runs=tuple(facts.values())))

        def states() -> None:
            found = engine.queries.canonical.states(refs)
            assert {ANSWERS[state] for state in found.values()} == {Answer.REUSE}

        def canonical() -> None:
            assert len(engine.queries.canonical.of(refs)) == N_CHECKED

        def claim() -> None:
            outcome = engine.handle(_claim(refs, may_build=False))
            assert outcome.claim is not None
            assert len(outcome.claim.reuse) == N_CHECKED

        timed = {what.__name__: _median(what, rounds) for what in (states, canonical, claim)}
        engine.store.close()
    return [
        Row("1,000 live refs checked for delegation (their answers)", _ms(timed["states"])),
        Row("the same with instance and job run of each", _ms(timed["canonical"])),
        Row("the same asked for and recorded in the ledger, with 1,000 skipped job runs", _ms(timed["claim"])),
    ]


def _claim(refs: Sequence[Ref], *, may_build: bool) -> ClaimRefs:
    return ClaimRefs(
        launch_id=new_id(),
        job="a",
        location="bench",
        dagster_run_id=new_id(),
        holder=this_process(),
        runs=tuple(BufferedRun(new_id(), (ref,), partition_key_of(ref)) for ref in refs),
        may_build=may_build,
    )


def _median(what: Callable[[], None], rounds: int) -> float:
    seconds = []
    for _ in range(rounds + 1):
        began = time.perf_counter()
        what()
        seconds.append(time.perf_counter() - began)
    return statistics.median(seconds[1:])


# The guard in the step


def of_guard(rounds: int = 5) -> list[Row]:
    """In a process of its own, for it wraps Dagster's storages."""
    done = subprocess.run(
        [sys.executable, "-c", f"from bench import delegation; delegation.guard_in_this_process({rounds})"],
        capture_output=True,
        text=True,
        timeout=MAX_SECONDS,
        check=False,
    )
    if done.returncode:
        raise RuntimeError(f"the guard was not measured:\n{done.stderr[-4000:]}")
    seconds = json.loads(done.stdout.splitlines()[-1])
    one, many = (seconds[str(n)] for n in (1, N_GUARDED))

    def per(what: Callable[[dict[str, float]], float]) -> str:
        each_ref = (what(many) - what(one)) / (N_GUARDED - 1)
        return f"{_ms(what(one) - each_ref)} + {_ms(each_ref)} per ref"

    return [
        Row("guard: the store's part of a launch", per(lambda seconds: seconds["store"])),
        Row(
            "everything of ours over a plain asset that writes the same file, Dagster's writes apart",
            per(
                lambda seconds: (
                    (seconds["ours"] - seconds["ours_writes"]) - (seconds["plain"] - seconds["plain_writes"])
                )
            ),
        ),
        Row("Dagster's own writes of the same launch", per(lambda seconds: seconds["ours_writes"])),
        Row("Dagster's own writes of the plain run", per(lambda seconds: seconds["plain_writes"])),
    ]


def guard_in_this_process(rounds: int) -> None:
    """Runs of ours and of the plain asset that writes the same files.

    Prints medians in seconds, by number of partitions, as JSON: runs, Dagster's writes in them, our store.
    """
    import dagster as dg

    from databuild_dagster.bindings.adapter.dagster_private import InMemoryJob, execute_run_iterator
    from databuild_dagster.bindings.adapter.run_tags import partition_tags
    from databuild_dagster.bindings.adapter.sqlite_tuning import tune_dagster_writes
    from databuild_dagster.bindings.authoring.location import load_code_locations
    from databuild_dagster.bindings.claims.launcher import run_config

    tune_dagster_writes()
    answer: dict[int, dict[str, float]] = {}
    with tempfile.TemporaryDirectory(prefix="databuild-bench-") as name:
        (Path(name) / "definitions.py").write_text(DEFINITIONS)
        (location,) = load_code_locations(files=[f"{name}/definitions.py"])
        with dg.instance_for_test(temp_dir=str(_made(Path(name) / "home"))) as instance:
            writes, store = Clock(), Clock()
            _time(instance.event_log_storage, EVENT_LOG_WRITES, writes)
            _time(instance.run_storage, RUN_WRITES, writes)
            _time(Engine, ("handle",), store)
            _time(Asking, ("_all",), store)

            unused = itertools.count()

            def run(asset: str, n: int) -> tuple[float, float, float]:
                key = dg.AssetKey(asset)
                job = location.repository.get_job("__ASSET_JOB").get_subset(asset_selection={key})
                tags = partition_tags(_days(n, date(2000, 1, 1) + timedelta(days=next(unused) * N_GUARDED)))
                made = instance.create_run_for_job(
                    job, tags=tags, asset_selection=frozenset({key}), run_config=run_config(job)
                )
                before, store_before, began = writes.seconds, store.seconds, time.perf_counter()
                for _ in execute_run_iterator(InMemoryJob(job), made, instance):
                    pass
                taken = time.perf_counter() - began
                ended = instance.get_run_by_id(made.run_id)
                assert ended is not None
                assert ended.is_success
                return taken, writes.seconds - before, store.seconds - store_before

            for n in (1, N_GUARDED):
                run("ours", n), run("plain_single_run", n)
                ours = [run("ours", n) for _ in range(rounds)]
                plain = [run("plain_single_run", n) for _ in range(rounds)]
                answer[n] = {
                    "ours": statistics.median(our[0] for our in ours),
                    "ours_writes": statistics.median(our[1] for our in ours),
                    "store": statistics.median(our[2] for our in ours),
                    "plain": statistics.median(item[0] for item in plain),
                    "plain_writes": statistics.median(item[1] for item in plain),
                }
    print(json.dumps(answer))


def _made(folder: Path) -> Path:
    folder.mkdir()
    return folder


def _time(owner: Any, names: Sequence[str], clock: Clock) -> None:
    for name in names:
        setattr(owner, name, _timed(getattr(owner, name) if isinstance(owner, type) else _of_class(owner, name), clock))


def _of_class(storage: object, name: str) -> Callable[..., Any]:
    """As the class has it when it is called: the adapter gives the class of events a method for batches later."""
    return lambda *arguments, **named: getattr(type(storage), name)(storage, *arguments, **named)


def _timed(function: Callable[..., Any], clock: Clock) -> Callable[..., Any]:
    inside = threading.local()

    @functools.wraps(function)
    def timed(*arguments: Any, **named: Any) -> Any:
        if getattr(inside, "busy", False):
            return function(*arguments, **named)
        inside.busy = True
        began = time.perf_counter()
        try:
            return function(*arguments, **named)
        finally:
            inside.busy = False
            clock.seconds += time.perf_counter() - began

    return timed


# Dagster as people run it


class Server:
    """`databuild dev` on a home of its own: web server, daemon and code server."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.home = _made(folder / "home")
        (self.home / "dagster.yaml").write_text(SETTINGS)
        (folder / "definitions.py").write_text(DEFINITIONS)
        (folder / "workspace.yaml").write_text("load_from:\n  - python_file: definitions.py\n")
        with socket.socket() as listener:
            listener.bind(("127.0.0.1", 0))
            self.port: int = listener.getsockname()[1]

    @classmethod
    @contextmanager
    def started(cls) -> "Iterator[Server]":
        folder = Path(tempfile.mkdtemp(prefix="databuild-bench-"))
        server = cls(folder)
        command = [sys.executable, "-m", "databuild_dagster", "dev", "-w", "workspace.yaml", "-p", str(server.port)]
        with (folder / "dev.log").open("w") as log:
            process = subprocess.Popen(
                command,
                cwd=folder,
                env=os.environ | {"DAGSTER_HOME": str(server.home)},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        try:
            server.wait(server.answers)
            yield server
        finally:
            os.killpg(process.pid, signal.SIGINT)
            try:
                process.wait(60)
            finally:
                # Runs that still wait are part of the group's session.
                _kill_group(process.pid)
                shutil.rmtree(folder, ignore_errors=True)

    def graphql(self, query: str, **variables: Any) -> dict[str, Any]:
        request = urllib.request.Request(
            f"http://127.0.0.1:{self.port}/graphql",
            json.dumps({"query": query, "variables": variables}).encode(),
            {"Content-Type": "application/json"},
        )
        with urllib.request.urlopen(request, timeout=MAX_SECONDS) as response:
            answer = json.load(response)
        assert "errors" not in answer, answer
        data: dict[str, Any] = answer["data"]
        return data

    def answers(self) -> bool:
        try:
            return bool(self.graphql("{ version }"))
        except (urllib.error.URLError, ConnectionError):
            return False

    def wait(self, happened: Callable[[], bool], every: float = POLL_SECONDS) -> None:
        deadline = time.monotonic() + MAX_SECONDS
        pause = threading.Event()
        while not happened():
            if time.monotonic() > deadline:
                raise TimeoutError((self.folder / "dev.log").read_text()[-4000:])
            pause.wait(every)

    def materialize(self, asset: str, days: Sequence[str]) -> str:
        """As the button does it; returns the Dagster run."""
        answer = self.graphql(LAUNCH, params=launch_params(asset, days))["launchPipelineExecution"]
        assert answer["__typename"] == "LaunchRunSuccess", answer
        return str(answer["run"]["runId"])

    def backfill(self, asset: str, days: Sequence[str]) -> str:
        params = {"assetSelection": [{"path": [asset]}], "partitionNames": list(days)}
        answer = self.graphql(_BACKFILL, params=params)["launchPartitionBackfill"]
        assert answer["__typename"] == "LaunchBackfillSuccess", answer
        return str(answer["backfillId"])

    def run(self, run_id: str) -> dict[str, Any]:
        run: dict[str, Any] = self.graphql(_RUN, id=run_id)["runOrError"]
        return run

    def runs(self, **tags: str) -> list[dict[str, Any]]:
        wanted = {"tags": [{"key": key, "value": value} for key, value in tags.items()]}
        runs: list[dict[str, Any]] = self.graphql(_RUNS, filter=wanted)["runsOrError"]["results"]
        return runs

    def n_green(self, asset: str) -> int:
        node = self.graphql(_GREEN, key={"path": [asset]})["assetNodeOrError"]
        return int(node["partitionStats"]["numMaterialized"])

    def until_green(self, asset: str, days: int) -> float:
        """Seconds from now until the UI shows that many partitions green."""
        began = time.perf_counter()
        self.wait(lambda: self.n_green(asset) >= days, every=SLOW_POLL_SECONDS)
        return time.perf_counter() - began


def _kill_group(process_group: int) -> None:
    try:
        os.killpg(process_group, signal.SIGKILL)
    except ProcessLookupError:
        return


def of_answer(server: Server, rounds: int) -> list[Row]:
    """Days of their own, each built first and asked for again then."""
    built, answered = [], []
    for day in _days(rounds):
        built.append(_until_ended(server, day))
        answered.append(_until_ended(server, day))
    no_process = all(run["stats"]["launchTime"] is None for run in server.runs(**{"databuild/delegated": "true"}))
    assert no_process, "a process was started for what is live"
    return [
        Row("a request for one partition, built: click to success", f"{statistics.median(built):.1f} s"),
        Row("the same again, all live, through the coordinator: no process", f"{statistics.median(answered):.2f} s"),
    ]


def _until_ended(server: Server, day: str) -> float:
    began = time.perf_counter()
    run_id = server.materialize("ours", [day])
    server.wait(lambda: server.run(run_id)["status"] in ("SUCCESS", "FAILURE"))
    assert server.run(run_id)["status"] == "SUCCESS"
    return time.perf_counter() - began


def of_many_at_once(server: Server, n: int) -> list[Row]:
    """Four in five through the button, the others as backfills; the build goes on when it has begun and all have asked."""
    (day,) = _days(1)
    ref = Ref(f"wanted_at_once@{day}")
    n_backfills = n // 5
    began = time.perf_counter()
    with ThreadPoolExecutor(16) as threads:
        buttons = [threads.submit(server.materialize, "wanted_at_once", [day]) for _ in range(n - n_backfills)]
        backfills = [threads.submit(server.backfill, "wanted_at_once", [day]) for _ in range(n_backfills)]
        runs = [button.result() for button in buttons]
        ids = [backfill.result() for backfill in backfills]
    server.wait(lambda: all(server.runs(**{"dagster/backfill": item}) for item in ids), every=SLOW_POLL_SECONDS)
    store = open_store(f"sqlite:///{server.home}/databuild.db")
    queries = Queries(store)
    server.wait(lambda: queries.canonical.states([ref])[ref] is InstanceState.BUILDING, every=SLOW_POLL_SECONDS)
    (server.folder / "open").touch()
    runs += [run["runId"] for item in ids for run in server.runs(**{"dagster/backfill": item})]

    def all_ended() -> bool:
        return all(server.run(run_id)["status"] in ("SUCCESS", "FAILURE", "CANCELED") for run_id in runs)

    server.wait(all_ended, every=SLOW_POLL_SECONDS)
    seconds = time.perf_counter() - began

    ended = [server.run(run_id) for run_id in runs]
    kinds = Counter(entry.kind.value for run_id in runs for entry in Ledger(store).of_requester(run_id))
    history = queries.instances.history(ref)
    assert [instance.state for instance in history] == [InstanceState.LIVE], history
    assert {run["status"] for run in ended} == {"SUCCESS"}
    processes = sum(run["stats"]["launchTime"] is not None for run in ended)
    delegated = len(runs) - kinds["built"]
    return [
        Row(
            f"{len(runs)} requests at once for one partition, {n_backfills} of them backfills",
            f"{len(history)} build, {delegated} delegations ({kinds['joined']} joined, {kinds['reused']} reused), "
            f"{processes} processes, all successful in {seconds:.0f} s",
        )
    ]


def of_year(server: Server, days: int, multi_run_days: int) -> list[Row]:
    """From the request to the last green partition."""
    keys = _days(days)
    server.materialize("year", keys)
    ours = server.until_green("year", days)
    server.backfill("plain_single_run", keys)
    single = server.until_green("plain_single_run", days)
    server.backfill("plain_multi_run", _days(multi_run_days))
    multi = server.until_green("plain_multi_run", multi_run_days)
    return [
        Row(f"{days} days through the UI's API to all green, ours", f"{ours:.1f} s, {ours / days:.3f} s per day"),
        Row("the same work, Dagster's single-run backfill", f"{single:.1f} s, {single / days:.3f} s per day"),
        Row(
            f"the same work, Dagster's multi-run backfill, {multi_run_days} days of it",
            f"{multi:.1f} s, {multi / multi_run_days:.1f} s per day",
        ),
    ]


def _days(n: int, first: date = date(2013, 1, 1)) -> list[str]:
    return [str(first + timedelta(days=number)) for number in range(n)]


def _ms(seconds: float) -> str:
    return f"{seconds * 1000:.1f} ms"


if __name__ == "__main__":
    main()
