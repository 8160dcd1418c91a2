"""Each kind of process is killed while something is being built: nothing is lost, nothing is built by two (rules 6.8, 6.9,
11.1). `bench/soak` does the same at random, for as long as one likes.

What is killed, and when, follows from what lies on the disk: an asset's function leaves a file with its process's id, and
waits for another one.
"""

from collections.abc import Iterator
from itertools import chain
from pathlib import Path

import pytest

from tests.support.processes import kill, processes_of

from .conftest import Dagster

pytestmark = [pytest.mark.long("processes are killed"), pytest.mark.timeout(600)]

DEFINITIONS = """
import os
import threading
from pathlib import Path

import dagster as dg
import pandas as pd

from databuild_dagster import BuildContext, build_definitions, databuild_asset

HERE = Path(__file__).parent
parts = dg.StaticPartitionsDefinition(["here", "command"])


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


defs = dg.Definitions.merge(
    build_definitions([outlives_all, loses_its_worker], location="kills"),
    # A process for each step besides that of each run would double the time of the tests.
    dg.Definitions(executor=dg.in_process_executor),
)
"""

BUILT = ("outlives_all", "loses_its_worker")
WEB, DAEMON, CODE = (
    ["databuild_dagster", "dev", "--no-daemon"],
    ["databuild_dagster.bindings.adapter.dev_logs"],
    ["api", "grpc"],
)


class Victim(Dagster):
    """A deployment whose processes are killed and started again."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder, DEFINITIONS)
        (folder / "calls").mkdir()

    def kill(self, *kinds: list[str]) -> None:
        """Kill the processes of every kind, given by words of their command line.

        All are found before the first is killed: `dagster dev` ends its other processes when one of them has ended.
        """
        pids = {" ".join(words): processes_of(self.home, *words) for words in kinds}
        assert all(pids.values()), f"a kind of process does not run and cannot be killed: {pids}"
        for pid in chain.from_iterable(pids.values()):
            kill(pid)

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
        live = {live_instance.uuid for asset in BUILT for live_instance in self.queries.instances.live(asset)}
        folders = [
            path for path in warehouse.glob("*/data/instance=*") if path.name.removeprefix("instance=") not in live
        ]
        return [*(warehouse / ".staging").glob("*"), *folders]


@pytest.fixture
def victim(tmp_path: Path) -> Iterator[Victim]:
    with Victim(tmp_path).running() as victim:
        yield victim


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
        return {want.state.value for ref in refs for want in victim.queries.wants.of_ref(ref)}

    victim.wait_until(lambda: states() == {"Successful"}, f"the wants of {refs} are successful")
