"""Each kind of process is killed while something is being built, then all of them at once: nothing is lost, nothing is
built by two (SPEC 6.8, 6.9, 11.1). `bench/soak.py` does the same at random, for as long as one likes.

What is killed, and when, follows from what lies on the disk: an asset's function leaves a file with its process's id, and
waits for another one.
"""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from databuild_dagster.model.states import InstanceState, JobRunState
from databuild_dagster.spark import server_status

from .conftest import MAX_SECONDS, Dagster

pytestmark = [pytest.mark.long, pytest.mark.timeout(600)]

DEFINITIONS = """
import os
import threading
import uuid
from pathlib import Path

import dagster as dg
import pandas as pd
from pyspark.sql import DataFrame, SparkSession

from databuild_dagster import BuildContext, build_definitions, databuild_asset

HERE = Path(__file__).parent
parts = dg.StaticPartitionsDefinition(["here", "command", "everything"])


def wait_for_go(context):
    ref = str(context.ref)
    (HERE / "calls" / f"{ref}#{os.getpid()}").touch()
    for _ in range(6000):
        if (HERE / f"go-{ref}").exists():
            return
        threading.Event().wait(0.05)
    raise TimeoutError(f"nobody said go to {ref}")


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


defs = build_definitions([outlives_all, loses_its_worker, loses_spark], location="kills")
"""

BUILT = ("outlives_all", "loses_its_worker", "loses_spark")

SPARK = "org.apache.spark.sql.connect.service.SparkConnectServer"
WEB, DAEMON, CODE = ["dagster_webserver"], ["dagster._daemon"], ["api", "grpc"]


class Victim(Dagster):
    """A deployment whose processes are killed and started again."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder, DEFINITIONS)
        (folder / "calls").mkdir()

    def processes(self, *words: str) -> list[int]:
        """What was started for this home, directly or not, and has these words in its command line."""
        mark = f"DAGSTER_HOME={self.home}".encode()
        found = []
        for pid in filter(str.isdigit, os.listdir("/proc")):
            with suppress(OSError):
                if mark in Path(f"/proc/{pid}/environ").read_bytes().split(b"\0"):
                    command = Path(f"/proc/{pid}/cmdline").read_bytes().decode().split("\0")
                    if set(words) <= set(command):
                        found.append(int(pid))
        return found

    def kill(self, *words: str) -> None:
        pids = self.processes(*words)
        assert pids, f"nothing runs that could be killed: {words}"
        for pid in pids:
            _kill(pid)

    def start_again(self) -> None:
        """As a supervisor does it, when `dagster dev` has ended."""
        self.process.wait(MAX_SECONDS)
        self.start()

    def callers(self, ref: str) -> list[int]:
        """The processes that have begun to build a ref."""
        return [int(path.name.partition("#")[2]) for path in (self.folder / "calls").glob(f"{ref}#*")]

    def go(self, *refs: str) -> None:
        for ref in refs:
            (self.folder / f"go-{ref}").touch()

    def wait_until_live(self, ref: str) -> None:
        self.wait_until(lambda: self.queries.states([ref])[ref] is InstanceState.LIVE, f"{ref} is live")

    def start_build(self, ref: str) -> "subprocess.Popen[bytes]":
        with (self.folder / "build.log").open("ab") as log:
            return subprocess.Popen(
                [sys.executable, "-m", "databuild_dagster", "build", ref],
                cwd=self.folder,
                env=self.environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )

    def remains(self) -> list[Path]:
        """What lies in the warehouse and is not live."""
        warehouse = self.home / "warehouse"
        live = {each.uuid for asset in BUILT for each in self.queries.live_instances(asset)}
        folders = [
            each for each in warehouse.glob("*/data/instance=*") if each.name.removeprefix("instance=") not in live
        ]
        return [*(warehouse / ".staging").glob("*"), *folders]


def _kill(pid: int) -> None:
    with suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)


@pytest.fixture(scope="module")
def victim(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Victim]:
    victim = Victim(tmp_path_factory.mktemp("kills"))
    yield victim
    for pid in victim.processes():
        _kill(pid)


def test_a_build_in_a_terminal_that_is_killed_is_gone_on_with_by_the_same_command(victim: Victim) -> None:
    """SPEC 6.9: on the same machine at once, with no daemon."""
    ref = "outlives_all@command"
    build = victim.start_build(ref)
    victim.process = build
    victim.wait_until(lambda: bool(victim.callers(ref)), "it is being built")
    build.kill()
    build.wait(MAX_SECONDS)

    victim.go(ref)
    answer = victim.databuild("build", ref)

    assert answer["refs"] == {"live": 1, "failed": 0}
    assert [run.state for run in victim.queries.job_runs()] == [JobRunState.SUCCEEDED, JobRunState.LOST]
    assert [want.state.value for want in victim.queries.wants_of_ref(ref)] == ["Successful", "Successful"]
    assert len(victim.callers(ref)) == 2
    assert victim.databuild("read", ref) == [{"n": 1}]
    assert victim.databuild("check", "--deep")["ok"]
    assert victim.remains() == []


def test_each_kind_of_process_is_killed_once_and_what_was_wanted_is_there_in_the_end(victim: Victim) -> None:
    outlives_all, loses_its_worker, loses_spark = refs = [f"{asset}@here" for asset in BUILT]
    victim.start()
    victim.databuild("want", "create", *refs)
    victim.wait_until(lambda: all(victim.callers(ref) for ref in refs), "all of it is being built")

    (worker,) = victim.callers(loses_its_worker)
    _kill(worker)
    server = server_status(victim.home)
    assert server is not None
    _kill(server.pid)
    victim.go(loses_its_worker, loses_spark)
    for words in (WEB, DAEMON, CODE):
        victim.kill(*words)
    # What is being built goes on without them, and reports itself.
    victim.go(outlives_all)
    victim.start_again()
    for ref in refs:
        victim.wait_until_live(ref)

    assert [len(victim.callers(ref)) for ref in refs] == [1, 2, 2], "only what was hit is built again"
    assert [victim.databuild("read", ref) for ref in refs] == [[{"n": 1}], [{"n": 2}], [{"n": 3}]]
    assert {want.state.value for ref in refs for want in victim.queries.wants_of_ref(ref)} == {"Successful"}
    assert victim.databuild("check", "--deep")["ok"]
    victim.wait_until(lambda: not victim.remains(), "nothing is left of what was killed")


def test_everything_is_killed_at_once_and_goes_on_when_it_is_started_again(victim: Victim) -> None:
    ref = "loses_spark@everything"
    victim.databuild("want", "create", ref)
    victim.wait_until(lambda: bool(victim.callers(ref)), "it is being built")

    victim.kill()
    victim.go(ref)
    victim.start_again()
    victim.wait_until_live(ref)

    assert len(victim.callers(ref)) == 2
    assert victim.databuild("read", ref) == [{"n": 3}]
    assert victim.databuild("check", "--deep")["ok"]
    victim.wait_until(lambda: not victim.remains(), "nothing is left of what was killed")
    assert len(victim.processes(SPARK)) == 1
