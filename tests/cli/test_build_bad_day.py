"""Builds that cannot end: a bad day stops no other day (rules 6.14, 6.15), and a ref that is set aside is named."""

from __future__ import annotations

import pytest

from tests.support.project import Project

from .sources import MAPPING_OF_A_REMOVED_KEY, of_pandas

DEFINITIONS = of_pandas("""
daily = dg.DailyPartitionsDefinition("2024-01-01", end_date="2024-02-01")
monthly = dg.MonthlyPartitionsDefinition("2024-01-01", end_date="2024-02-01")

@databuild_asset(partitions_def=daily, max_partitions_per_launch=100)
def weather(context: BuildContext) -> pd.DataFrame:
    if (HERE / f"fail-{context.partition_key}").exists():
        raise ValueError(f"no station reported on {context.partition_key}")
    return pd.DataFrame({"day": [context.partition_key]})

@databuild_asset(partitions_def=daily, max_partitions_per_launch=100)
def extremes(weather: pd.DataFrame) -> pd.DataFrame:
    return weather

@databuild_asset(partitions_def=monthly)
def climate(extremes: pd.DataFrame) -> pd.DataFrame:
    return extremes

defs = build_definitions([weather, extremes, climate])
""")
BAD, MONTH = "2024-01-17", "climate@2024-01-01"
SAID = f"weather@{BAD} failed first"
COMMAND = f"databuild retry weather@{BAD}"


def n_live(project: Project, asset: str) -> int:
    return sum(row["state"] == "Live" for row in project.ask("partitions", asset))


@pytest.mark.long("two assets of 31 days are built")
def test_a_bad_day_stops_no_other_day_and_a_retry_builds_the_rest(project: Project) -> None:
    project.define(DEFINITIONS)
    project.fail(BAD)

    first = project.call("build", MONTH)
    assert first.code == 1
    assert (n_live(project, "weather"), n_live(project, "extremes"), n_live(project, "climate")) == (30, 30, 0)

    again = project.call("build", MONTH)
    assert again.code == 1
    for done in (first, again):
        assert SAID in done.out
        assert COMMAND in done.out
    assert SAID in project.call("want", "create", MONTH).err

    project.fail(BAD, yes=False)
    before = project.queries.events.head().seq
    built = project.build(MONTH, "--retry")
    assert (built["refs"], built["job_runs"]["succeeded"]) == ({"live": 1, "failed": 0}, 3)
    made = [
        event.fact for event in project.queries.events.after(before) if type(event.fact).__name__ == "JobRunSucceeded"
    ]
    refs = {output.ref for fact in made for run in fact.runs for output in run.outputs}
    assert refs == {f"weather@{BAD}", f"extremes@{BAD}", MONTH}
    assert project.is_sound()


def test_a_build_of_a_ref_that_is_set_aside_names_the_reason(project: Project) -> None:
    """Rule 11.5"""
    project.define(MAPPING_OF_A_REMOVED_KEY)

    done = project.call("build", "zone@south")

    assert done.code == 1
    assert "{'zz'}" in done.err + done.out
    assert "`databuild explain zone@south` says why." in done.err + done.out
