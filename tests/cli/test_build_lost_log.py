"""A build whose log goes back under it (rule 3.13)."""

from __future__ import annotations

from tests.support.project import Project

DEFINITIONS = """
import os
import sqlite3

import pandas as pd

from databuild_dagster import build_definitions, databuild_asset


@databuild_asset
def orders() -> pd.DataFrame:
    with sqlite3.connect(os.path.join(os.environ["DAGSTER_HOME"], "databuild.db")) as store:
        store.execute("DROP TRIGGER databuild_events_no_delete")
        store.execute("DELETE FROM databuild_events WHERE seq > 1")
    return pd.DataFrame({"n": [1]})


defs = build_definitions([orders], location="shop")
"""


def test_a_build_on_a_log_that_went_back_ends_with_that_reason(project: Project) -> None:
    project.define(DEFINITIONS)

    built = project.call("build", "orders", "--json")

    assert built.code == 1, built
    assert built.json["error"]["type"] == "LogWentBack"
