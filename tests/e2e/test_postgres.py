"""Dagster's storage in PostgreSQL: our log lies beside its runs, without a line of configuration, and all of it works."""

import json
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from databuild_dagster.store.ledger import Ledger
from tests.support.postgres import postgres_server

from .conftest import DEFINITIONS as ORDERS_AND_REVENUE
from .conftest import MAX_SECONDS, SETTINGS, Dagster

pytestmark = pytest.mark.long

#: Long enough for three partitions to be built, whatever else the machine does.
TTL_SECONDS = 60
DEFINITIONS = ORDERS_AND_REVENUE.replace(
    "\n\ndefs =",
    """


@databuild_asset(partitions_def=daily)
def stock(context: BuildContext) -> pd.DataFrame:
    return pd.DataFrame({"day": [context.partition_key]})


defs =""",
)
DAYS = ("2024-01-29", "2024-01-30", "2024-01-31")

MATERIALIZATIONS = """
query($key: AssetKeyInput!) {
  assetNodeOrError(assetKey: $key) { ... on AssetNode {
    partitionStats { numMaterialized numFailed numPartitions }
  } }
}
"""


class DagsterOnPostgres(Dagster):
    """Its runs, events and schedules are in a schema of their own, and so is what is ours."""

    def __init__(self, folder: Path) -> None:
        self._url = postgres_server().fresh_url()
        # Dagster's driver is named, or SQLAlchemy would take another.
        dagsters = self._url.replace("+psycopg:", "+psycopg2:")
        super().__init__(
            folder,
            DEFINITIONS.replace("[orders, revenue]", "[orders, revenue, stock]"),
            settings=f"{SETTINGS}storage: {{postgres: {{postgres_url: '{dagsters}'}}}}\n",
        )

    @property
    def store_url(self) -> str:
        return self._url

    def run(self, *arguments: str) -> "subprocess.CompletedProcess[str]":
        return subprocess.run(
            [sys.executable, "-m", "databuild_dagster", *arguments],
            cwd=self.folder,
            env=self.environment,
            capture_output=True,
            text=True,
            timeout=MAX_SECONDS,
            check=False,
        )

    def stats(self, asset: str) -> dict[str, int]:
        found: dict[str, Any] = self.graphql(MATERIALIZATIONS, key={"path": [asset]})
        stats: dict[str, int] = found["assetNodeOrError"]["partitionStats"]
        return stats


@pytest.fixture(scope="module")
def dagster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DagsterOnPostgres]:
    running = DagsterOnPostgres(tmp_path_factory.mktemp("postgres"))
    running.start()
    yield running
    running.stop()
    running.store.close()


def test_wants_are_built_by_the_daemon_and_by_commands_at_once_each_partition_once(dagster: DagsterOnPostgres) -> None:
    """SPEC 8.4, 11.4: two orchestrators, and three who ask."""
    wanted = dagster.databuild("want", "create", "revenue@2024-01-01")
    with ThreadPoolExecutor() as pool:
        asked = [pool.submit(dagster.run, "build", "revenue@2024-01-01", "--json") for _ in range(2)]
        built = [json.loads(each.result().stdout.splitlines()[-1]) for each in asked]

    assert [each["refs"] for each in built] == [{"live": 1, "failed": 0}] * 2
    assert dagster.queries.wants_named(wanted[0]["id"])[0].state.value == "Successful"
    refs = ["revenue@2024-01-01", *(f"orders@{day}" for day in DAYS)]
    assert [len(dagster.queries.history(ref)) for ref in refs[1:]] == [1, 1, 1]
    (answers,) = ({each.kind.value for each in Ledger(dagster.store).of_ref(ref)} for ref in refs[:1])
    assert answers <= {"built", "joined", "reused"}
    assert dagster.violations() == []
    assert not (dagster.home / "databuild.db").exists()


def test_dagster_shows_what_was_built_and_what_is_tainted(dagster: DagsterOnPostgres) -> None:
    """SPEC 7.1; the events that paint a taint go into Dagster's own tables."""
    refs = [f"stock@{day}" for day in DAYS]
    began = time.time()
    dagster.databuild("want", "create", *refs, "--ttl", f"{TTL_SECONDS}s")
    dagster.wait_until(lambda: dagster.stats("stock")["numMaterialized"] == 3, "Dagster shows three green")
    dagster.wait_until(lambda: time.time() > began + TTL_SECONDS, "nobody wants them any more")

    dagster.databuild("taint", refs[0], "--reason", "a test")

    dagster.wait_until(lambda: dagster.stats("stock")["numFailed"] == 1, "Dagster shows one red")
    assert dagster.violations() == []


def test_every_command_that_looks_answers(dagster: DagsterOnPostgres) -> None:
    dagster.databuild("build", "revenue@2024-01-01")

    for command in (
        ("check", "--deep"),
        ("partitions", "orders"),
        ("show", "revenue@2024-01-01"),
        ("history", "revenue@2024-01-01"),
        ("explain", "revenue@2024-01-01"),
        ("plan", "revenue@2024-01-01"),
        ("receipt", "revenue@2024-01-01"),
        ("want", "list"),
        ("job-runs",),
        ("delegations",),
        ("metrics",),
        ("locations", "list"),
        ("migrate",),
        ("rebuild",),
        ("check",),
        ("read", "revenue@2024-01-01"),
    ):
        done = dagster.run(*command)
        assert (done.returncode, "Traceback" in done.stderr) == (0, False), (command, done.stdout, done.stderr)


def test_a_server_that_is_not_there_is_said_in_one_sentence(dagster: DagsterOnPostgres) -> None:
    """SPEC 3.5: and the password is not."""
    dagster.environment = dagster.environment | {"DATABUILD_DB_URL": "postgresql+psycopg://me:secret@127.0.0.1:1/x"}

    done = dagster.run("want", "list")

    assert done.returncode == 2
    assert "cannot be used" in done.stderr
    assert "secret" not in done.stdout + done.stderr
    assert "Traceback" not in done.stderr
