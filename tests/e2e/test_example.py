"""What `make demo` does, on the real flights: January is right, once, and only manifests say what is read.

Commands run in this process, and Spark is the server of the whole test run.
"""

import json
import shutil
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from databuild_dagster.bindings.reading.spark_resource import close_sessions
from databuild_dagster.spark.session import ui_urls
from tests.support import command
from tests.support.spark_ui import spark_jobs

pytestmark = [pytest.mark.long("the example computes on Spark"), pytest.mark.timeout(900)]

ROOT = Path(__file__).parent.parent.parent
MONTH = "carrier_monthly@2013-01-01"
DAYS = [f"flight_delays@2013-01-{day:02}" for day in range(1, 32)]


class Example:
    """The example deployment on a home of its own, in which January was built."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.january = self.ask("build", MONTH)

    def n_spark_jobs(self) -> int:
        """The Spark jobs of all launches of the home so far."""
        with sqlite3.connect(self.home / "databuild.db") as connection:
            launches = connection.execute("SELECT launch_id FROM databuild_launches").fetchall()
        return len(set[int]().union(*(spark_jobs(url, launch) for url in ui_urls(self.home) for (launch,) in launches)))

    def ask(self, *arguments: str, code: int = 0) -> Any:
        done = command.databuild(ROOT, self.home, *arguments, "--json")
        assert done.code == code, done
        return done.json


@pytest.fixture(scope="module")
def example(tmp_path_factory: pytest.TempPathFactory, spark_home: str) -> Iterator[Example]:
    home = tmp_path_factory.mktemp("home")
    shutil.copy(ROOT / "dagster.yaml", home)
    command.share_spark_server(home, spark_home)
    yield Example(home)
    close_sessions()


@pytest.mark.mission
def test_january_is_its_27004_flights_of_which_52_have_no_weather(example: Example) -> None:
    built = example.january

    assert built["refs"] == {"live": 1, "failed": 0}
    assert built["job_runs"] == {"succeeded": 95, "dep_missed": 32, "failed": 0, "canceled": 0}
    assert sum(row["flights"] for row in example.ask("read", MONTH)) == 27_004
    flights = [row for day in DAYS for row in example.ask("read", day)]
    assert len(flights) == 27_004
    assert sum(row["temp"] is None and row["humid"] is None for row in flights) == 52
    assert len(example.ask("show", MONTH)["canonical"]["inputs"]) == 31


def test_a_second_demo_runs_no_job(example: Example) -> None:
    built = example.ask("build", MONTH)

    assert (built["launches"], built["job_runs"]["succeeded"], built["reused"]) == (0, 0, 1)


def test_a_build_makes_few_spark_jobs(example: Example) -> None:
    """Under adaptive execution each shuffle and each broadcast is a job."""
    counts = [example.n_spark_jobs()]

    example.ask("build", "flight_delays@2013-02-01")
    counts.append(example.n_spark_jobs())
    example.ask("taint", "flights@2013-01-05", "--downstream", "--reason", "wrong")
    example.ask("build", MONTH)
    counts.append(example.n_spark_jobs())

    january, day, wrong_day = counts[0], counts[1] - counts[0], counts[2] - counts[1]
    assert 0 < january <= 8, "five launches, two broadcasts and a blocking check"
    assert day <= 5, "three launches and two broadcasts"
    assert wrong_day <= 6, "three launches, two broadcasts and a blocking check"


def test_january_by_a_spark_with_a_bucket_is_january_by_one_with_a_disk(
    example: Example, running_sail, s3, bucket, tmp_path, monkeypatch
) -> None:
    """Rule 10.9"""
    (tmp_path / "workspace.yaml").write_text("load_from:\n  - python_module: bench.anywhere.deployed\n")
    monkeypatch.setenv("BENCH_SPARK", running_sail.url)
    monkeypatch.setenv("BENCH_WAREHOUSE", f"s3://{bucket}/warehouse")
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    home = tmp_path / "home"
    home.mkdir()

    def by_sail(*arguments: str) -> Any:
        done = command.databuild(tmp_path, home, *arguments, "--json")
        assert done.code == 0, done
        return done.json

    built = by_sail("build", MONTH)

    assert built["job_runs"]["succeeded"] == 95
    for ref in (MONTH, *DAYS[::10]):
        assert rows_of(by_sail("read", ref)) == rows_of(example.ask("read", ref)), ref
    assert by_sail("log", "check", "--deep") == {"ok": True, "violations": []}


def rows_of(read: list[dict[str, Any]]) -> list[str]:
    return sorted(json.dumps(row, sort_keys=True) for row in read)
