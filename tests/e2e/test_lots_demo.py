"""What `make lots-demo` does, on two of its days: the gap report names the files that the sender says it left out."""

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support import command
from tests.support.child_environment import child_environment
from tests.support.processes import kill_processes_of

#: The rules are proved by tests/features/lots, among them those of empty lots and of files that are sent twice.
pytestmark = [pytest.mark.long("it plays `make lots-demo`"), pytest.mark.timeout(1200), pytest.mark.extended]

ROOT = Path(__file__).parent.parent.parent
#: Two cores under load included; alone it is a twentieth of it.
MAX_SECONDS = 1000


class Demo:
    """A demo that has been played."""

    def __init__(self, folder: Path) -> None:
        self.environment = child_environment() | {
            "LOTS_DEMO": str(folder),
            "LOTS_DAYS": "2",
            "DEMO_PYTHON": sys.executable,
        }
        self.home = folder / "home"
        done = self.run("sh", "examples/flights/lots_demo.sh")
        assert done.returncode == 0, (done.stdout, done.stderr)
        self.out = done.stdout

    def run(self, *command: str) -> "subprocess.CompletedProcess[str]":
        return subprocess.run(
            command, cwd=ROOT, env=self.environment, capture_output=True, text=True, timeout=MAX_SECONDS, check=False
        )

    def ask(self, *arguments: str) -> Any:
        done = command.databuild(ROOT, self.home, *arguments, "--json")
        assert done.code == 0, done
        return done.json

    def output(self, number: int) -> str:
        """What stands under one of its steps."""
        return re.split(r"^\d\. ", self.out, flags=re.MULTILINE)[number]

    def said(self, what: str, goes: str) -> list[str]:
        """Lots of the files that the sender says so of."""
        named = re.findall(rf"{what}_(\d{{8}})T(\d\d)00\.parquet: {goes}", self.output(1))
        return [f"{day}PT1H0{hour}" for day, hour in named]


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Demo]:
    folder = tmp_path_factory.mktemp("lots")
    try:
        demo = Demo(folder)
        yield demo
        assert demo.ask("spark") == [], "no server is left running"
    finally:
        kill_processes_of(folder / "home")


def test_the_gap_report_names_what_the_sender_left_out_and_nothing_else(demo: Demo) -> None:
    """Rule 10.7"""
    never = demo.said("flights", "it never comes")
    assert never == ["20130208PT1H017"]

    flights = demo.ask("lot", "gaps", "landed_flights")
    days = demo.ask("lot", "gaps", "daily_summary")

    assert [(item["lot"], item["cause"]) for item in flights["absent"]] == [(lot, "never arrived") for lot in never]
    assert [item["lot"] for item in days["absent"]] == ["20130208P1D000"]
    assert days["absent"][0]["first_cause"].startswith("landed_flights@2013-02-08-17:00: no data has arrived")
    assert "20130208PT1H017  1  never arrived" in demo.output(5)


def test_late_rows_are_a_new_instance_and_go_through_the_arcs_to_their_day(demo: Demo) -> None:
    """Rules 10.5, 10.6"""
    (half,) = demo.said("flights", "half of its rows come late")
    assert half == "20130209PT1H015"
    before, after = (sum(map(int, re.findall(r"^[A-Z]{3} +(\d+)", demo.output(step), re.MULTILINE))) for step in (6, 8))

    hours = demo.ask("history", "landed_flights@2013-02-09-15:00")
    days = demo.ask("history", "daily_summary@2013-02-09")

    assert (len(hours), len(days)) == (2, 2)
    assert before < after == sum(row["flights"] for row in demo.ask("read", "daily_summary@2013-02-09"))
    assert {
        (item["arc"], item["state"]) for item in demo.ask("lot", "list", "--subscriptions") if item["lot"] == half
    } == {
        ("hourly_joined", "complete"),
        ("hourly_delays", "complete"),
    }
    assert demo.ask("log", "check", "--deep") == {"ok": True, "violations": []}
