"""The recipe of docs/how-to/environments.md for pull requests, with git, a checkout of production and one of a branch."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.support.child_environment import child_environment

PAGE = Path(__file__).parents[3] / "docs" / "how-to" / "environments.md"
DEFINITIONS = """
import dagster as dg
import pandas as pd

from databuild_dagster import BuildContext, build_definitions, databuild_asset

daily = dg.DailyPartitionsDefinition("2024-01-01", end_date="2024-02-01")


@databuild_asset(partitions_def=daily)
def raw(context: BuildContext) -> pd.DataFrame:
    return pd.DataFrame({"day": [context.partition_key] * 3, "amount": [1.0, 2.0, 3.0]})


def cleaned(name: str):
    @databuild_asset(name=f"clean_{name}", partitions_def=daily)
    def clean(raw: pd.DataFrame) -> pd.DataFrame:
        return raw[raw["amount"] > 0.0]

    return clean


@databuild_asset(partitions_def=daily)
def prices(raw: pd.DataFrame) -> pd.DataFrame:
    return raw[raw["amount"] > 1.0]


@databuild_asset(partitions_def=daily)
def report(prices: pd.DataFrame, clean_a: pd.DataFrame) -> pd.DataFrame:
    return pd.DataFrame({"total": [prices["amount"].sum() + clean_a["amount"].sum()]})


@databuild_asset(partitions_def=daily)
def summary(clean_a: pd.DataFrame, clean_b: pd.DataFrame) -> pd.DataFrame:
    return pd.concat([clean_a, clean_b])


defs = build_definitions([raw, prices, report, summary, *(cleaned(name) for name in "abcdef")])
"""
WEEK = "2024-01-25..2024-01-31"

pytestmark = pytest.mark.long("git, and the commands of the page, are processes")


def recipe() -> list[str]:
    """The scripts of the page: in the pull request, and after the merge."""
    section = PAGE.read_text(encoding="utf-8").split("## In each pull request\n")[1].split("\n## ")[0]
    return re.findall(r"```bash\n(.*?)```", section, re.DOTALL)


class Checkout:
    """A work tree of git, beside the home of production."""

    def __init__(self, folder: Path, home: Path) -> None:
        self.folder = folder
        programs = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
        names = {f"GIT_{who}_{what}": "somebody" for who in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")}
        self._environment = (
            child_environment() | names | {"DAGSTER_HOME": str(home), "BRANCH": "fix-prices", "PATH": programs}
        )

    def run(self, script: str) -> str:
        """What a script of the shell prints, which must succeed."""
        done = subprocess.run(
            ["bash", "-euc", script], cwd=self.folder, env=self._environment, capture_output=True, text=True
        )
        assert done.returncode == 0, f"{script}: {done.stdout[-2000:]}{done.stderr[-2000:]}"
        return done.stdout

    def ask(self, command: str) -> Any:
        return json.loads(self.run(f"databuild {command} --json"))


def test_a_branch_is_compared_and_promoted_and_production_builds_nothing_again(tmp_path: Path) -> None:
    in_request, after_merge = recipe()
    for name in ("production", "home"):
        (tmp_path / name).mkdir()
    production, branch = (Checkout(tmp_path / name, tmp_path / "home") for name in ("production", "branch"))
    (tmp_path / "home" / "dagster.yaml").write_text("telemetry: {enabled: false}\n")
    (production.folder / "definitions.py").write_text(DEFINITIONS)
    (production.folder / "workspace.yaml").write_text("load_from:\n  - python_file: definitions.py\n")
    production.run("git init -q -b main && git add . && git commit -qm 'Ten assets'")
    production.run(f"databuild build {{report,summary,clean_{{c,d,e,f}}}}@{WEEK}")
    production.run("git clone -q . ../branch && cd ../branch && git switch -qc fix-prices")

    (branch.folder / "definitions.py").write_text(
        DEFINITIONS.replace('raw[raw["amount"] > 1.0]', 'raw[raw["amount"] > 2.0]')
    )
    branch.run("git commit -qam 'Leave out low prices'")
    branch.run(in_request)
    (opened,) = branch.ask("env list")
    before = production.ask("read report@2024-01-31")
    production.run("git pull -q ../branch fix-prices")
    production.run(after_merge)

    comment = (branch.folder / "comment.md").read_text()
    assert (opened["built"], opened["borrowed"]) == (14, 14), (
        "prices and report are the cone; raw and clean_a are its inputs"
    )
    assert ("| prices | 7 different |" in comment, "| report | 7 different |" in comment) == (True, True), comment
    assert [row["total"] for row in (*before, *production.ask("read report@2024-01-31"))] == [11.0, 9.0]
    again = production.ask(f"build report@{WEEK} summary@{WEEK}")
    assert (again["launches"], again["refs"]["live"]) == (0, 14)
    assert production.ask("env list") == []
