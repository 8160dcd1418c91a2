"""A lost or damaged input is the fault of that input, which the build names with the command that repairs it (rule 6.16)."""

import shlex
from pathlib import Path

import pytest

from tests.support.damage import DAMAGES
from tests.support.project import Project

from .sources import of_pandas

DEFINITIONS = of_pandas("""
@databuild_asset
def orders() -> pd.DataFrame:
    return pd.DataFrame({"amount": [1.5, 2.5]})

@databuild_asset
def revenue(orders: pd.DataFrame) -> pd.DataFrame:
    return pd.DataFrame({"revenue": [orders["amount"].sum()]})

@databuild_asset
def report(revenue: pd.DataFrame) -> pd.DataFrame:
    return revenue

defs = build_definitions([orders, revenue, report])
""")


@pytest.mark.parametrize("damage", ["lost file", "zeroed file", "truncated manifest"])
def test_a_build_names_the_damaged_input_and_continues_after_its_repair(project: Project, damage: str) -> None:
    project.define(DEFINITIONS)
    project.build("orders")
    file = Path(project.ask("show", "orders")["canonical"]["files"][0])
    DAMAGES[damage](file)

    refused = project.call("read", "orders", "--json").json["error"]
    stopped = project.call("build", "report", "--json")

    assert (refused["message"].split()[0], "orders`" in refused["hint"]) == ("orders", True)
    named = "revenue: its input orders is damaged. `databuild build --rebuild orders` builds it again. "
    assert (stopped.code, stopped.json["job_runs"]["failed"]) == (1, 0)
    assert stopped.json["hints"][0].startswith(named + str(file.parent))
    assert project.queries.planning.attempts(["revenue"]) == {"revenue": 0}
    assert project.ask("show", "revenue")["state"] == "UpForRetry"
    assert "its input orders is damaged. `databuild build --rebuild orders`" in project.call("explain", "report").out

    _, command, *_ = stopped.json["hints"][0].split("`")
    assert project.call(*shlex.split(command)[1:]).code == 0
    assert project.build("report")["refs"] == {"live": 1, "failed": 0}
    assert project.ask("read", "report") == [{"revenue": 4.0}]
    assert project.is_sound()
