"""A build with equal rows is said by the command line: by `build`, `show --full`, `explain` and `metrics` (rule 4.8)."""

from __future__ import annotations

from tests.support.project import Project, empty_home, project

__all__ = ["empty_home", "project"]

DEFINITIONS = """
import pandas as pd
from databuild_dagster import build_definitions, databuild_asset

@databuild_asset(same_data="keep")
def orders() -> pd.DataFrame:
    return pd.DataFrame({"amount": [1, 2]})

@databuild_asset
def sums(orders: pd.DataFrame) -> pd.DataFrame:
    return orders[["amount"]] * 2

defs = build_definitions([orders, sums])
"""


def test_a_build_says_what_its_equal_rows_leave_as_before(project: Project) -> None:
    project.define(DEFINITIONS)
    first = project.build("sums")

    again = project.build("orders", "--rebuild")
    text = project.call("build", "orders", "--rebuild").out
    receipt = project.call("show", "--full", "sums").out
    metrics = project.ask("metrics")

    assert (first["equal"], first["cut_off"], first["returned"]) == (0, 0, 0)
    assert (again["equal"], again["cut_off"], again["returned"]) == (1, 1, 0)
    assert " 1 ref got equal rows again, which leaves 1 ref downstream as before." in text
    assert "No build of sums follows orders, which got equal rows again." in receipt
    assert project.ask("explain", "sums")["causes"][0]["why"].endswith(
        "; no build follows orders, which got equal rows again"
    )
    assert {job: found["cut_off"] for job, found in metrics.items()} == {"orders": 0, "sums": 2}
    assert 'databuild_builds_cut_off{job="sums"} 2.0' in project.call("metrics", "--prometheus").out
    assert project.is_sound()
