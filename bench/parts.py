"""What a retry of a lot in parts costs; `bench.lots` prints it."""

import itertools
import json
import statistics
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import dagster as dg
from pyspark.sql import DataFrame, SparkSession

from databuild_dagster import ByFile, DatabuildSpark, build_definitions, databuild_asset
from databuild_dagster.bindings.adapter.sqlite_tuning import tune_dagster_writes
from databuild_dagster.bindings.building.deployment import deployment_of_repository
from databuild_dagster.bindings.claims.launcher import OrderCollector
from databuild_dagster.bindings.orchestration.inprocess import execute_order
from databuild_dagster.bindings.orchestration.orchestrator import run_tick
from databuild_dagster.bindings.reading.spark_resource import close_sessions
from databuild_dagster.bindings.registry.instance import engine_for
from databuild_dagster.bindings.registry.registration import datasets_of
from databuild_dagster.engine.registering import register
from databuild_dagster.model.commands import CreateWants, TaintPartitions
from databuild_dagster.model.refs import parse_ref
from databuild_dagster.model.states import InstanceState
from databuild_dagster.spark.server import server_statuses, stop_server

N_PARTS = 64
ROWS_PER_PART = 250_000
#: The call of the first attempt that fails.
FAILING = 20
MAX_TICKS = 10
MAX_SECONDS = 60.0

_failing: Iterator[int] | None = None


@databuild_asset
def numbers(spark: SparkSession) -> DataFrame:
    """A file for each part."""
    return spark.range(N_PARTS * ROWS_PER_PART, numPartitions=N_PARTS).selectExpr("id as n")


@databuild_asset
def few_numbers(spark: SparkSession) -> DataFrame:
    """As many as one part has."""
    return spark.range(ROWS_PER_PART, numPartitions=1).selectExpr("id as n")


def worked_on(frame: DataFrame) -> DataFrame:
    return frame.selectExpr("n", "sha2(cast(n as string), 256) as digest")


@databuild_asset(parts=ByFile("numbers", parts=N_PARTS))
def in_parts(numbers: DataFrame) -> DataFrame:
    if _failing is not None and next(_failing) == FAILING:
        raise ValueError("this part is bad")
    return worked_on(numbers)


@databuild_asset
def alone(few_numbers: DataFrame) -> DataFrame:
    return worked_on(few_numbers)


class Work(NamedTuple):
    """What a build took."""

    rows: int
    #: Of Spark's tasks.
    task_seconds: float
    #: From the start of the job run to its end.
    seconds: float


def parts(rounds: int) -> None:
    global _failing
    found: dict[str, list[Work]] = {"first attempt, one part fails": [], "the retry": [], "that part alone": []}
    with _site() as site:
        site.build("numbers", "few_numbers")
        for warm_up in (True, *([False] * rounds)):
            site.taint("in_parts")
            _failing = itertools.count()
            first = site.build("in_parts", state=InstanceState.FAILED)
            _failing = None
            site.taint("in_parts")
            retry = site.build("in_parts")
            site.taint("alone")
            by_itself = site.build("alone")
            if not warm_up:
                for works, work in zip(found.values(), (first, retry, by_itself), strict=True):
                    works.append(work)
    print(
        f"| {N_PARTS} parts of {ROWS_PER_PART:,} rows | rows that Spark read | of Spark's tasks, s | job run, s | × alone |\n"
        "|---|---|---|---|---|"
    )
    of_one = statistics.median(work.seconds for work in found["that part alone"])
    for name, works in found.items():
        rows = {work.rows for work in works}
        seconds = statistics.median(work.seconds for work in works)
        print(
            f"| {name} | {' or '.join(f'{row:,}' for row in sorted(rows))} "
            f"| {statistics.median(work.task_seconds for work in works):.2f} | {seconds:.2f} | {seconds / of_one:.2f} |"
        )
    ratios = [
        one.seconds / other.seconds for one, other in zip(found["the retry"], found["that part alone"], strict=True)
    ]
    print(f"\nThe retry beside the part alone, round by round: {', '.join(f'{ratio:.2f}' for ratio in ratios)}")


class _Site:
    def __init__(self, instance: dg.DagsterInstance, home: str) -> None:
        self._instance = instance
        self._home = home
        definitions = build_definitions(
            [numbers, few_numbers, in_parts, alone], location="bench", spark=DatabuildSpark(home=home)
        )
        self._repository = definitions.get_repository_def()
        deployment = deployment_of_repository(self._repository)
        assert deployment is not None
        self._deployment = deployment
        self._engine = engine_for(instance)
        register(self._engine, deployment.location, datasets_of(self._repository.asset_graph, deployment.location))

    def taint(self, name: str) -> None:
        ref = parse_ref(name)
        if self._engine.queries.canonical.states([ref])[ref] in (InstanceState.LIVE, InstanceState.FAILED):
            self._engine.handle(TaintPartitions(refs=(ref,), reason="bench"))

    def build(self, *names: str, state: InstanceState = InstanceState.LIVE) -> Work:
        refs = tuple(parse_ref(name) for name in names)
        before = self._counted()
        self._engine.handle(CreateWants(wants=tuple((ref,) for ref in refs)))
        launcher = OrderCollector(self._instance)
        for _ in range(MAX_TICKS):
            run_tick(self._instance, self._repository, self._deployment, launcher)
            orders = launcher.take_orders()
            if not orders:
                break
            for order in orders:
                for _ in execute_order(self._instance, self._repository, order):
                    pass
        assert {self._engine.queries.canonical.states([ref])[ref] for ref in refs} == {state}
        after = self._counted()
        run = self._engine.queries.job_runs.newest(most=1)[0]
        assert len(refs) > 1 or run.refs == refs
        assert run.started_at is not None
        assert run.ended_at is not None
        return Work(after[0] - before[0], after[1] - before[1], run.ended_at - run.started_at)

    def _counted(self) -> tuple[int, float]:
        """Rows that Spark's stages have read so far, and the seconds of their tasks, when Spark has settled."""
        status = next(iter(server_statuses(self._home)), None)
        if status is None:
            return 0, 0.0
        (application,) = _asked(f"{status.ui_url}/api/v1/applications")
        url = f"{status.ui_url}/api/v1/applications/{application['id']}/stages"
        until = time.monotonic() + MAX_SECONDS
        last = None
        while time.monotonic() < until:
            stages = _asked(url)
            found = (
                sum(stage["inputRecords"] for stage in stages),
                sum(stage["executorRunTime"] for stage in stages) / 1000,
            )
            if found == last and not any(stage["status"] in ("ACTIVE", "PENDING") for stage in stages):
                return found
            last = found
            time.sleep(0.2)
        raise TimeoutError(f"Spark has not settled in {MAX_SECONDS:.0f} s.")


@contextmanager
def _site() -> Iterator[_Site]:
    tune_dagster_writes()
    with tempfile.TemporaryDirectory(prefix="databuild-bench-") as folder:
        home, dagster_home = str(Path(folder, "spark")), Path(folder, "dagster")
        dagster_home.mkdir()
        with dg.DagsterInstance.local_temp(str(dagster_home)) as instance:
            try:
                yield _Site(instance, home)
            finally:
                close_sessions()
                stop_server(home)


def _asked(url: str) -> Any:
    with urllib.request.urlopen(url, timeout=MAX_SECONDS) as answer:
        return json.load(answer)
