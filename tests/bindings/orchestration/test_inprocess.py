"""Launches that the command line executes in its own process."""

import os
from collections import Counter

import dagster as dg
import pandas as pd
import pytest

from databuild_dagster import databuild_asset
from databuild_dagster.data.home import DB_URL_VARIABLE
from tests.support.held import held
from tests.support.postgres import postgres_server

#: With DATABUILD_LONG=1 the figures of docs/reliability.md.
BUILDS = 1_000 if os.environ.get("DATABUILD_LONG") else 10
#: Sixteen files of Dagster runs stay open, and each of these builds has two runs.
WARM_UP = 8
#: Descriptors of one kind that threads have opened at the same moment; SQLite uses them again.
AT_ONCE = 5


@pytest.mark.long("many builds of one process, beside the server of a database")
@pytest.mark.parametrize("database", ["sqlite", "postgres"])
def test_builds_of_one_process_leave_no_file_thread_or_session(deploy, monkeypatch, database):
    days = dg.DynamicPartitionsDefinition(name="days")

    @databuild_asset(partitions_def=days)
    def source() -> pd.DataFrame:
        return pd.DataFrame({"n": [1]})

    @databuild_asset(partitions_def=days)
    def copied(source: pd.DataFrame) -> pd.DataFrame:
        return source

    if database == "postgres":
        server = postgres_server()
        monkeypatch.setenv(DB_URL_VARIABLE, server.fresh_url())
    site = deploy(source, copied)
    site.instance.add_dynamic_partitions("days", [str(day) for day in range(WARM_UP + BUILDS)])

    def held_after(days):
        for day in days:
            site.build(f"copied@{day}")
        sessions = {"session": len(server.sessions())} if database == "postgres" else {}
        return held() + Counter(sessions)

    before = held_after(range(WARM_UP))
    more = held_after(range(WARM_UP, WARM_UP + BUILDS)) - before

    assert {kind: n for kind, n in more.items() if n > AT_ONCE} == {}
