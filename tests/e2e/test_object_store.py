"""The command line over a warehouse in a bucket: build, show, read, and a check that sees what is gone."""

from pathlib import Path
from typing import Any

import pytest

from tests.support import command
from tests.support.object_store import S3Server

pytestmark = [pytest.mark.long("commands build into a server's bucket"), pytest.mark.timeout(600)]

DEFINITIONS = """
import dagster as dg
import pandas as pd

from databuild_dagster import BuildContext, build_definitions, databuild_asset

daily = dg.DailyPartitionsDefinition("2024-01-29", end_date="2024-02-01")
monthly = dg.MonthlyPartitionsDefinition("2024-01-01", end_date="2024-02-01")


@databuild_asset(partitions_def=daily)
def orders(context: BuildContext) -> pd.DataFrame:
    return pd.DataFrame({{"day": [context.partition_key], "amount": [2.0]}})


@databuild_asset(partitions_def=monthly)
def revenue(orders: pd.DataFrame) -> pd.DataFrame:
    return pd.DataFrame({{"revenue": [orders["amount"].sum()]}})


defs = build_definitions([orders, revenue], warehouse="{warehouse}")
"""


class Project:
    def __init__(self, folder: Path, warehouse: str) -> None:
        self.folder = folder
        self.home = folder / "home"
        self.home.mkdir()
        (folder / "definitions.py").write_text(DEFINITIONS.format(warehouse=warehouse))
        (folder / "workspace.yaml").write_text("load_from:\n  - python_file: definitions.py\n")

    def run(self, *arguments: str) -> command.Done:
        return command.databuild(self.folder, self.home, *arguments)

    def ask(self, *arguments: str) -> Any:
        return self.run(*arguments, "--json").json


@pytest.fixture
def project(tmp_path: Path, bucket: str) -> Project:
    return Project(tmp_path, f"s3://{bucket}/warehouse")


def test_what_is_built_into_a_bucket_is_shown_read_and_checked(project: Project, s3: S3Server, bucket: str) -> None:
    assert project.run("build", "revenue@2024-01-01").code == 0

    assert project.ask("read", "revenue@2024-01-01") == [{"revenue": 6.0}]
    (file,) = project.ask("show", "orders@2024-01-30")["canonical"]["files"]
    assert file.startswith(f"s3://{bucket}/warehouse/orders/data/instance=")
    assert project.ask("log", "check", "--deep") == {"ok": True, "violations": []}

    s3.client().delete_object(Bucket=bucket, Key=file.removeprefix(f"s3://{bucket}/"))

    (violation,) = project.ask("log", "check", "--deep")["violations"]
    assert (violation["invariant"], violation["entity"]) == ("I7", "orders@2024-01-30")
