"""`databuild status`: assets by state, open wants, and whether an orchestrator ticks (rules 15)."""

import pytest

from databuild_dagster.bindings.registry.instance import engine_for, open_instance
from databuild_dagster.cli.status import ASKED_WANTS, MAX_ASSETS, MAX_WANTS
from databuild_dagster.engine.orchestrator_notes import note_tick
from databuild_dagster.engine.tick_pass import TickLimits
from tests.support.project import Project

pytestmark = pytest.mark.long

SCREEN_LINES = 50
MANY = """
import pandas as pd
from databuild_dagster import build_definitions, databuild_asset

def asset_called(name):
    @databuild_asset(name=name)
    def made() -> pd.DataFrame:
        return pd.DataFrame({"n": [1]})
    return made

defs = build_definitions([asset_called(f"asset_{n:02}") for n in range(40)])
"""


def counts_of(answer: dict, asset: str) -> dict[str, int]:
    (found,) = [row for row in answer["assets"] if row["asset"] == asset]
    return {name: n for name, n in found.items() if name != "asset" and n}


def test_status_counts_the_partitions_of_each_asset_by_state(project: Project) -> None:
    project.fail("2024-01-30")
    project.build("orders@2024-01-29", "orders@2024-01-31")
    project.call("build", "revenue@2024-01-01")
    project.call("taint", "orders@2024-01-31", "--reason", "wrong")

    answer = project.ask("status")

    assert counts_of(answer, "orders") == {"live": 1, "tainted": 1, "failed": 1, "missing": 29}
    assert counts_of(answer, "revenue") == {"failed": 1, "missing": 1}
    assert counts_of(answer, "wrong_type") == {"missing": 1}


def test_a_partition_that_is_being_built_and_one_that_waits_for_it(project: Project) -> None:
    project.call("tick")
    project.claim("orders@2024-01-29")

    assert counts_of(project.ask("status"), "orders") == {"building": 1, "missing": 31}


def test_open_wants_of_people_are_counted_without_those_of_job_runs(project: Project) -> None:
    counted: list[tuple[int, int, list[str]]] = []

    def look() -> None:
        queries = project.queries
        refs = [ref for want in queries.wants(ASKED_WANTS, most=MAX_WANTS) for ref in want.refs]
        counted.append((queries.n_wants(ASKED_WANTS), queries.n_open_wants(), refs))

    project.call_while_held("2024-01-29", look, "build", "revenue@2024-01-01")

    ((n_asked, n_open, refs),) = counted
    assert (n_asked, refs) == (1, ["revenue@2024-01-01"])
    assert n_open > 1


def test_status_shows_an_open_want(project: Project) -> None:
    project.call("want", "create", "revenue@2024-01-01")

    answer = project.ask("status")

    assert answer["open_wants"] == 1
    assert [want["refs"] for want in answer["wants"]] == [["revenue@2024-01-01"]]


def test_status_says_whether_an_orchestrator_ticks(project: Project) -> None:
    """Rule 11.4: one tick of a command is none."""
    created = project.call("want", "create", "revenue@2024-01-01")
    project.call("tick")
    (absent,) = project.ask("status")["orchestrators"]
    name = absent["location"]
    with project.own_process(), open_instance(project.home) as instance:
        note_tick(engine_for(instance), name, TickLimits(), interval_seconds=5.0)

    done = project.call("status")

    assert (absent["ticks"], absent["last_tick_at"]) == (False, None)
    assert absent["why_not"].startswith(f"no orchestrator of location {name!r} has ticked here")
    assert f"Warning: {absent['why_not']}." in created.err
    assert f"The orchestrator of {name} ticks, last at " in done.out
    assert "Warning" not in project.call("want", "list").err


def test_status_before_anything_is_registered_says_what_registers(project: Project) -> None:
    done = project.call("status")

    assert done.code == 0
    assert done.out.startswith(
        "No code location has registered an asset yet. `databuild build` registers what it loads."
    )


def test_status_of_many_assets_fits_one_screen_and_json_has_all(project: Project) -> None:
    project.define(MANY)
    project.call("build", "asset_00", "asset_01")
    for n in range(2, 22):
        project.call("want", "create", f"asset_{n:02}")

    done = project.call("status")

    assert len(done.out.splitlines()) <= SCREEN_LINES
    assert (
        f"{40 - 2 - MAX_ASSETS} more assets: not everything is live. `databuild status --json` lists all." in done.out
    )
    assert "2 more assets: all partitions are live." in done.out
    assert f"{20 - MAX_WANTS} more open wants" in done.out
    assert len(project.ask("status")["assets"]) == 40
