"""`databuild job-run list` names instances; `show` and `history` the instance before (rule 2.3)."""

from __future__ import annotations

import pytest

from databuild_dagster import (
    get_builds_for_partition,
    get_partition_by_uuid,
    get_wants_for_partition,
)
from databuild_dagster.data.read_plan import InvalidAsOf
from tests.support.project import Project

DAY = "orders@2024-01-29"


def test_job_runs_show_and_history_name_instances(project: Project) -> None:
    project.build(DAY)
    project.build(DAY, "--rebuild")

    second, first = project.ask("job-run", "list")

    (old,), (new,) = first["instances"], second["instances"]
    assert new in project.call("job-run", "list", "--wide").out
    assert [build.instances for build in get_builds_for_partition(DAY, home=project.home)] == [(old,), (new,)]
    assert project.ask("show", DAY)["canonical"]["uuid"] == new
    assert project.ask("show", DAY)["canonical"]["previous_uuid"] == old
    assert old in project.call("show", DAY).out
    assert [(row["uuid"], row["previous_uuid"]) for row in project.ask("history", DAY)] == [(old, None), (new, old)]
    assert "previous" in project.call("history", DAY, "--wide").out
    instance = get_partition_by_uuid(new, home=project.home)
    assert instance is not None
    assert instance.previous_uuid == old


def test_an_instance_and_its_wants_are_shown_as_they_were_when_a_job_run_ran(project: Project) -> None:
    """Rule 3.2, findings/seeds.md 7: `history` and the lookups by uuid and by ref take a moment."""
    project.build(DAY)
    (made,) = project.ask("history", DAY)
    project.ask("taint", DAY, "--reason", "the till was broken")
    then = project.n_events()
    project.build(DAY)
    began = next(seq for seq in range(1, then) if _state_at(project, made["uuid"], seq) == "Building")

    (as_it_was,) = project.ask("history", DAY, "--as-of", str(began))

    assert (as_it_was["state"], as_it_was["canonical"], as_it_was["live_since"]) == ("Building", True, None)
    assert len(project.ask("history", DAY)) == 2
    assert _state_at(project, made["uuid"], then) == "Tainted"
    wants = get_wants_for_partition(DAY, as_of=began, home=project.home)
    assert [want.state.value for want in wants] == ["Building"]
    assert [want.state.value for want in get_wants_for_partition(DAY, home=project.home)] == ["Successful"] * 2
    assert project.call("history", DAY, "--as-of", "1").out == f"Nothing had built {DAY} as of seq 1.\n"
    with pytest.raises(InvalidAsOf):
        get_partition_by_uuid(made["uuid"], as_of=99_999, home=project.home)


def _state_at(project: Project, uuid: str, seq: int) -> str | None:
    instance = get_partition_by_uuid(uuid, as_of=seq, home=project.home)
    return None if instance is None else instance.state.value


def test_canceling_a_build_names_the_refs_and_wants_that_wait_for_it(project: Project) -> None:
    """Rule 6.10: before it acts, with the command that opens all of it again."""
    month = "revenue@2024-01-01"
    project.call("tick")
    project.claim(DAY)
    project.ask("want", "create", month)
    project.call("tick")
    (job_run,) = project.ask("job-run", "list", "--open")
    (want,) = project.ask("want", "list", "--ref", month)

    done = project.call("job-run", "cancel", job_run["id"], "--json")

    (canceled,) = done.json
    assert (canceled["waiting_refs"], canceled["waiting_wants"]) == ([month], [want["id"]])
    assert f"`databuild retry {DAY}`" in done.err
    assert project.ask("show", month)["state"] == "UpstreamFailed"
    assert project.ask("show", DAY)["state"] == "Failed"
