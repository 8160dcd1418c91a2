"""Code that is edited and edited back needs no build, by any door (rule 4.9)."""

from __future__ import annotations

from typing import Any

import dagster as dg
import pandas as pd
import pytest

from databuild_dagster import databuild_asset
from databuild_dagster.bindings.adapter.dagster_private import DATA_VERSION_TAG
from databuild_dagster.bindings.adapter.run_tags import REBUILD_TAG
from databuild_dagster.bindings.orchestration.duties import Place
from databuild_dagster.engine.returning import provide
from databuild_dagster.engine.why.explain import explain
from databuild_dagster.features.same_data.showing_returned import DUTIES
from databuild_dagster.model.commands import CreateWants, TaintPartitions
from databuild_dagster.model.refs import Ref
from databuild_dagster.model.states import InstanceState
from tests.bindings.conftest import Site
from tests.support.project import Project, empty_home, project

__all__ = ["empty_home", "project"]

DEFINITIONS = """
import pandas as pd
from databuild_dagster import build_definitions, databuild_asset

@databuild_asset
def orders() -> pd.DataFrame:
    return pd.DataFrame({"amount": [1, 2]})

@databuild_asset(deterministic=True)
def sums(orders: pd.DataFrame) -> pd.DataFrame:
    return orders[["amount"]] * 2

@databuild_asset(deterministic=True)
def report(sums: pd.DataFrame) -> pd.DataFrame:
    return sums[["amount"]] * 1

defs = build_definitions([orders, sums, report])
"""


def uuid(project: Project, ref: str) -> str:
    found: str = project.ask("show", ref)["canonical"]["uuid"]
    return found


def test_a_function_that_is_edited_and_edited_back_is_built_by_no_job_run(project: Project) -> None:
    """By the command line, with real files."""
    project.define(DEFINITIONS)
    project.build("report")
    first = [uuid(project, ref) for ref in ("sums", "report")]
    other = DEFINITIONS.replace("* 2", "* 3").replace("* 1", "* 10")
    project.define(other)
    assert project.build("sums", "report", "--fresh")["job_runs"]["succeeded"] == 2
    before = project.queries.events.head().seq

    project.define(DEFINITIONS)
    project.call("want", "create", "sums", "report", "--fresh", "-f", "definitions.py")
    plan = project.ask("plan", "report")
    built = project.build("report")

    reasons = {planned["ref"]: (planned["action"], planned["reason"]) for planned in plan["jobs"]}
    assert plan["launches"] == 0
    assert reasons["report"][0] == "reuse"
    assert reasons["report"][1].startswith("the instance of 20")
    assert reasons["report"][1].endswith("Z, whose code and inputs are equal")
    assert (built["job_runs"]["succeeded"], built["launches"]) == (0, 0)
    assert [uuid(project, ref) for ref in ("sums", "report")] == first
    assert project.queries.events.named(("JobRunBuffered", "JobRunSkipped"), before, 1 << 40) == []
    assert project.ask("read", "report") == [{"amount": 2}, {"amount": 4}]
    assert project.is_sound()


def coded(factor: int) -> list[Any]:
    """`orders`, and `sums` by the code of one factor."""

    @databuild_asset
    def orders() -> pd.DataFrame:
        return pd.DataFrame({"amount": [1]})

    def double(orders: pd.DataFrame) -> pd.DataFrame:
        return orders[["amount"]] * 2

    def treble(orders: pd.DataFrame) -> pd.DataFrame:
        return orders[["amount"]] * 3

    return [orders, databuild_asset(name="sums", deterministic=True)({2: double, 3: treble}[factor])]


@pytest.fixture
def edited_back(deploy: Any) -> tuple[Site, str]:
    """`sums` was built by two codes, is wanted from the first code again, and waits; with its first instance."""
    site: Site = deploy(*coded(2))
    site.build("sums")
    first = site.engine.queries.canonical.of(["sums"])["sums"].uuid or ""
    site = deploy(*coded(3))
    site.engine.handle(CreateWants(wants=(("sums",),), fresh=True))
    site.build()
    site = deploy(*coded(2))
    site.engine.handle(CreateWants(wants=(("sums",),), fresh=True))
    return site, first


def versions(instance: dg.DagsterInstance) -> list[str]:
    """The data versions of the materializations in Dagster, newest first."""
    records = instance.fetch_materializations(dg.AssetKey("sums"), limit=10).records
    found = [record.asset_materialization for record in records]
    return [(made.tags or {})[DATA_VERSION_TAG] for made in found if made is not None]


def test_a_tick_takes_it_back_and_shows_dagster_a_materialization(edited_back: tuple[Site, str]) -> None:
    site, first = edited_back
    assert "reuses the instance of 20" in str(explain(site.engine, "sums"))
    n_runs = len(site.instance.get_runs())

    site.build()

    assert site.engine.queries.canonical.of(["sums"])["sums"].uuid == first
    assert len(site.instance.get_runs()) == n_runs
    shown = versions(site.instance)
    assert (len(shown), shown[0], shown[-1]) == (3, first, first)
    site.build()
    assert len(versions(site.instance)) == 3, "once"


@pytest.mark.parametrize("is_tainted", [False, True])
def test_a_build_without_a_tick_shows_what_came_back_and_is_still_live(
    edited_back: tuple[Site, str], is_tainted: bool
) -> None:
    """A Dagster run took it back, so the build has nothing to do."""
    site, first = edited_back
    assert list(provide(site.engine, [Ref("sums")]).live) == ["sums"]
    if is_tainted:
        site.engine.handle(TaintPartitions(refs=("sums",), reason="it looks wrong"))
    (duty,) = DUTIES
    place = Place(site.instance, site.deployment, site.engine.queries.datasets.all().values())

    assert duty.finish is not None
    assert duty.finish(place, None)

    assert (versions(site.instance)[0] == first) is not is_tainted


@pytest.mark.parametrize(("tags", "is_back"), [({}, True), ({REBUILD_TAG: "true"}, False)])
def test_a_dagster_run_takes_it_back_unless_a_rebuild_was_asked_for(
    edited_back: tuple[Site, str], tags: dict[str, str], is_back: bool
) -> None:
    site, first = edited_back

    site.launch(["sums"], tags=tags)

    assert site.state("sums") is InstanceState.LIVE
    assert (site.engine.queries.canonical.of(["sums"])["sums"].uuid == first) is is_back
    assert site.rows("sums") == [{"amount": 2}]
