"""`databuild tick`: one tick of the orchestrator, or as many as there is work (rule 11.1)."""

import pytest

from .conftest import Project

pytestmark = pytest.mark.long

JANUARY = "revenue@2024-01-01"
DAY = "orders@2024-01-30"

UNSTEADY = """
import dagster as dg
import pandas as pd

from databuild_dagster import Transient, build_definitions, databuild_asset

@databuild_asset
def unsteady() -> pd.DataFrame:
    raise Transient("the shop is closed")

defs = build_definitions([unsteady])
"""


def test_until_idle_builds_open_wants_and_their_inputs(project: Project) -> None:
    project.call("tick")
    project.call("want", "create", JANUARY)

    done = project.call("tick", "--until-idle")
    again = project.call("tick", "--until-idle", "--json")

    assert done.code == 0, done
    assert done.out.startswith("Launched ")
    assert project.ask("show", JANUARY)["state"] == "Live"
    assert (again.json["launched"], again.json["failed"], again.json["timed_out"]) == ([], 0, False)


def test_until_idle_exits_with_1_for_a_failed_job_run(project: Project) -> None:
    project.call("tick")
    project.fail("2024-01-30")
    project.call("want", "create", DAY)

    done = project.call("tick", "--until-idle")

    assert done.code == 1
    assert done.out.splitlines()[-1] == "1 job run failed: `databuild job-run list` shows why."


def test_until_idle_waits_for_a_retry_until_its_timeout(project: Project) -> None:
    project.define(UNSTEADY)
    assert project.call("tick").code == 0
    project.call("want", "create", "unsteady")

    done = project.call("tick", "--until-idle", "--timeout", "1s")

    assert done.code == 1
    assert done.out.splitlines()[-1].startswith("The --timeout of 1 s has passed, and work is left")
    assert project.ask("show", "unsteady")["state"] == "UpForRetry"


def test_a_timeout_of_one_tick_is_refused(known_project: Project) -> None:
    done = known_project.call("tick", "--timeout", "1m")

    assert (done.code, done.out) == (2, "")
    assert "--timeout needs --until-idle" in done.err
