"""Each kind of process is killed while something is being built, then all of them at once: nothing is lost, nothing is
built by two (rules 6.8, 6.9, 11.1). An operation whose executor is killed ends all the same, once (rules 9.4-9.6).
`bench/soak` does the same at random, for as long as one likes.

What is killed, and when, follows from what lies on the disk: an asset's function leaves a file with its process's id, and
waits for another one.
"""

import subprocess
import sys
from collections.abc import Iterator
from itertools import chain
from pathlib import Path

import pytest

from databuild_dagster.engine.engine import Engine
from databuild_dagster.features.operations.manager import DistributedOperationManager
from databuild_dagster.features.operations.seen import OperationView
from databuild_dagster.model.operations.keys import OperationId
from databuild_dagster.model.operations.states import OperationState
from databuild_dagster.model.states import JobRunState
from tests.support.catalog import SmallCatalog
from tests.support.processes import kill, kill_processes_of, processes_of
from tests.support.spark_servers import server_status

from .conftest import Dagster

pytestmark = [pytest.mark.long("processes are killed"), pytest.mark.timeout(600)]

DEFINITIONS = """
import os
import threading
import uuid
from pathlib import Path

import dagster as dg
import pandas as pd
from pyspark.sql import DataFrame, SparkSession

from databuild_dagster import BuildContext, DistributedOperation, build_definitions, databuild_asset

HERE = Path(__file__).parent
N_NUMBERS = 4
parts = dg.StaticPartitionsDefinition(["here", "command", "spark", "everything"])


def wait_for_go(context):
    ref = str(context.ref)
    (HERE / "calls" / f"{ref}#{os.getpid()}").touch()
    for _ in range(6000):
        if (HERE / f"go-{ref}").exists():
            return
        threading.Event().wait(0.05)
    raise TimeoutError(f"no test said go to {ref}")


@databuild_asset(partitions_def=parts)
def outlives_all(context: BuildContext) -> pd.DataFrame:
    wait_for_go(context)
    return pd.DataFrame({"n": [1]})


@databuild_asset(partitions_def=parts)
def loses_its_worker(context: BuildContext) -> pd.DataFrame:
    wait_for_go(context)
    return pd.DataFrame({"n": [2]})


@databuild_asset(partitions_def=parts)
def loses_spark(context: BuildContext, spark: SparkSession) -> DataFrame:
    assert spark.range(7).count() == 7
    wait_for_go(context)
    return spark.range(3, 4).withColumnRenamed("id", "n")


@databuild_asset(partitions_def=dg.StaticPartitionsDefinition([str(n) for n in range(N_NUMBERS)]))
def numbers(context: BuildContext) -> pd.DataFrame:
    return pd.DataFrame({"n": [int(context.partition_key)]})


class Count(DistributedOperation):
    '''Writes a file for each partition; the first process that comes to the middle is stuck there.'''

    type_name = "count"

    def start_or_resume_job(self, arg, partition, context):
        (HERE / "jobs" / f"{context.partition}#{os.getpid()}").touch()
        if context.partition == "2" and not context.is_resumed:
            # Of one write, so that the test never reads half of it.
            (HERE / "getting-stuck").write_text(str(os.getpid()))
            (HERE / "getting-stuck").rename(HERE / "stuck")
            threading.Event().wait(600)
        rows = context.manifest.rows
        (HERE / "written" / f"{context.partition}#{context.token}").touch()
        context.mark_job_complete(True, {"rows": rows})

    def cancel_job_and_cleanup(self, arg, partition, context):
        (HERE / "written" / f"{context.partition}#{context.token}").unlink(missing_ok=True)

    def complete_operation(self, arg, dataset, completion):
        (HERE / "completed" / str(sum(mark.detail["rows"] for mark in completion.marks.values()))).touch()
        return {"rows": sum(mark.detail["rows"] for mark in completion.marks.values())}


defs = dg.Definitions.merge(
    build_definitions([outlives_all, loses_its_worker, loses_spark, numbers], operations=[Count()], location="kills"),
    # A process for each step besides that of each run would double the time of the tests.
    dg.Definitions(executor=dg.in_process_executor),
)
"""

#: Partitions of what the operations are about.
N_NUMBERS = 4
BUILT = ("outlives_all", "loses_its_worker", "loses_spark", "numbers")

SPARK = "org.apache.spark.sql.connect.service.SparkConnectServer"
OPERATION_RUNS = '{ runsOrError(filter: {pipelineName: "databuild_operation"}) { ... on Runs { results { status } } } }'
WEB, DAEMON, CODE = ["databuild_dagster", "webserver"], ["dagster._daemon"], ["api", "grpc"]
EVERYTHING: list[str] = []


class Victim(Dagster):
    """A deployment whose processes are killed and started again."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder, DEFINITIONS)
        for name in ("calls", "jobs", "written", "completed"):
            (folder / name).mkdir()

    def kill(self, *kinds: list[str]) -> None:
        """Kill the processes of every kind, given by words of their command line.

        All are found before the first is killed: `dagster dev` ends its other processes when one of them has ended.
        """
        pids = {" ".join(words): processes_of(self.home, *words) for words in kinds}
        assert all(pids.values()), f"a kind of process does not run and cannot be killed: {pids}"
        for pid in chain.from_iterable(pids.values()):
            kill(pid)

    def start_what_has_ended(self) -> None:
        """Start the deployment again when a test that failed has left it without one of its processes."""
        if not all(processes_of(self.home, *words) for words in (WEB, DAEMON, CODE)):
            self.stop()
            self.start()

    def start_again(self) -> None:
        """As a supervisor does it, when `dagster dev` has ended."""
        self.wait_for_end()
        self.start()

    def callers(self, ref: str) -> list[int]:
        """The processes that have begun to build a ref."""
        return [int(path.name.partition("#")[2]) for path in (self.folder / "calls").glob(f"{ref}#*")]

    def go(self, *refs: str) -> None:
        for ref in refs:
            (self.folder / f"go-{ref}").touch()

    def remains(self) -> list[Path]:
        """What lies in the warehouse and is not live."""
        warehouse = self.home / "warehouse"
        live = {live_instance.uuid for asset in BUILT for live_instance in self.queries.live_instances(asset)}
        folders = [
            path for path in warehouse.glob("*/data/instance=*") if path.name.removeprefix("instance=") not in live
        ]
        return [*(warehouse / ".staging").glob("*"), *folders]


def manager(dagster: Dagster) -> DistributedOperationManager:
    return DistributedOperationManager(Engine(dagster.store, SmallCatalog([])))


def view(dagster: Dagster, id: str) -> OperationView:
    return manager(dagster).operation(OperationId.parse(id))


def keys(dagster: Dagster) -> list[str]:
    """What operations have left, but for what is meant to stay."""
    stays = ("nextInstanceId", "distOpHistory")
    entries = manager(dagster).meta.prefix("distOp").entries
    return [entry.key for entry in entries if not any(name in entry.key for name in stays)]


def statuses(dagster: Dagster) -> list[str]:
    """Of the Dagster runs that are executors of operations."""
    return [run["status"] for run in dagster.graphql(OPERATION_RUNS)["runsOrError"]["results"]]


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


@pytest.fixture
def without_daemon(tmp_path: Path) -> Iterator[Victim]:
    victim = Victim(tmp_path)
    yield victim
    kill_processes_of(victim.home)


@pytest.fixture(scope="module")
def deployment(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Victim]:
    with Victim(tmp_path_factory.mktemp("kills")).running() as deployment:
        deployment.databuild("build", *(f"numbers@{n}" for n in range(N_NUMBERS)))
        yield deployment


@pytest.fixture
def victim(deployment: Victim) -> Iterator[Victim]:
    """The deployment with all of its processes; builds that a failed test has left waiting go on after it."""
    deployment.start_what_has_ended()
    yield deployment
    deployment.go(*{path.name.partition("#")[0] for path in (deployment.folder / "calls").iterdir()})


def test_a_killed_build_in_a_terminal_is_continued_by_the_same_command(without_daemon: Victim) -> None:
    """Rule 6.9: on the same machine at once, with no daemon."""
    victim = without_daemon
    ref = "outlives_all@command"
    with (victim.folder / "dev.log").open("ab") as log:
        build = subprocess.Popen(
            [sys.executable, "-m", "databuild_dagster", "build", ref],
            cwd=victim.folder,
            env=victim.environment,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
        )
    victim.process = build
    victim.wait_until(lambda: bool(victim.callers(ref)), "it is being built")
    build.kill()
    victim.wait_for_end()

    victim.go(ref)
    answer = victim.databuild("build", ref)

    assert answer["refs"] == {"live": 1, "failed": 0}
    assert [run.state for run in victim.queries.job_runs()] == [JobRunState.SUCCEEDED, JobRunState.LOST]
    assert [want.state.value for want in victim.queries.wants_of_ref(ref)] == ["Successful", "Successful"]
    assert len(victim.callers(ref)) == 2
    assert victim.databuild("read", ref) == [{"n": 1}]
    assert victim.databuild("log", "check", "--deep")["ok"]
    assert victim.remains() == []


def test_whichever_process_is_killed_what_was_wanted_is_built(victim: Victim) -> None:
    """A worker, the web server, the daemon and the code server, one after another."""
    outlives_all, loses_its_worker = refs = [f"{asset}@here" for asset in ("outlives_all", "loses_its_worker")]
    victim.databuild("want", "create", *refs)
    victim.wait_until(lambda: all(victim.callers(ref) for ref in refs), "all of it is being built")

    (worker,) = victim.callers(loses_its_worker)
    kill(worker)
    victim.go(loses_its_worker)
    victim.kill(WEB, DAEMON, CODE)
    # What is being built goes on without them, and reports itself.
    victim.go(outlives_all)
    victim.start_again()
    for ref in refs:
        victim.wait_until_live(ref)

    assert [len(victim.callers(ref)) for ref in refs] == [1, 2], "only what was hit is built again"
    assert [victim.databuild("read", ref) for ref in refs] == [[{"n": 1}], [{"n": 2}]]
    wait_until_wants_are_successful(victim, *refs)
    victim.wait_until(lambda: not victim.remains(), "nothing is left of what was killed")
    assert victim.databuild("log", "check", "--deep")["ok"]


def wait_until_wants_are_successful(victim: Victim, *refs: str) -> None:
    """The tick after the build ends them."""

    def states() -> set[str]:
        return {want.state.value for ref in refs for want in victim.queries.wants_of_ref(ref)}

    victim.wait_until(lambda: states() == {"Successful"}, f"the wants of {refs} are successful")


def test_an_operation_whose_executor_is_killed_ends_the_same_and_once(victim: Victim) -> None:
    """Rules 9.5, 9.6"""
    id: str = victim.databuild("operation", "run", "count", "numbers", "--no-wait")["operation"]
    stuck = victim.folder / "stuck"
    victim.wait_until(stuck.exists, "a job is stuck")

    kill(int(stuck.read_text()))
    victim.wait_until(lambda: view(victim, id).state is not OperationState.RUNNING, "it has ended")

    ended = view(victim, id)
    assert (ended.state, ended.done, ended.total, ended.report) == (OperationState.SUCCESS, 4, 4, {"rows": 4})
    assert names(victim.folder / "completed") == ["4"]
    assert [name.partition("#")[0] for name in names(victim.folder / "written")] == ["0", "1", "2", "3"]
    of_the_stuck = [name for name in names(victim.folder / "jobs") if name.startswith("2#")]
    assert len(of_the_stuck) == 2, "by the executor that was killed, and by the next one"
    victim.wait_until(lambda: keys(victim) == [], "no key is left")
    victim.wait_until(
        lambda: set(statuses(victim)) == {"SUCCESS", "FAILURE"}, "Dagster shows which of its runs were lost"
    )
    assert victim.violations() == []


@pytest.mark.extended
def test_a_killed_spark_server_is_replaced_and_what_it_built_is_built_again(victim: Victim) -> None:
    ref = "loses_spark@spark"
    victim.databuild("want", "create", ref)
    victim.wait_until(lambda: bool(victim.callers(ref)), "it is being built")

    server = server_status(victim.home)
    assert server is not None
    kill(server.pid)
    victim.go(ref)
    victim.wait_until_live(ref)

    assert len(victim.callers(ref)) == 2
    assert victim.databuild("read", ref) == [{"n": 3}]
    wait_until_wants_are_successful(victim, ref)
    victim.wait_until(lambda: not victim.remains(), "nothing is left of what was killed")


@pytest.mark.extended
def test_everything_is_killed_at_once_and_goes_on_when_it_is_started_again(victim: Victim) -> None:
    ref = "loses_spark@everything"
    victim.databuild("want", "create", ref)
    victim.wait_until(lambda: bool(victim.callers(ref)), "it is being built")

    victim.kill(EVERYTHING)
    victim.go(ref)
    victim.start_again()
    victim.wait_until_live(ref)

    assert len(victim.callers(ref)) == 2
    assert victim.databuild("read", ref) == [{"n": 3}]
    victim.wait_until(lambda: not victim.remains(), "nothing is left of what was killed")
    assert victim.databuild("log", "check", "--deep")["ok"]
    victim.wait_until(lambda: len(processes_of(victim.home, SPARK)) == 1, "one Spark server runs")
