"""`databuild want list`: filters, the wants of job runs, and looking back (rule 5.9)."""

from __future__ import annotations

import pytest

from databuild_dagster.engine.why.want_report import MAX_EXPLAINED
from tests.support.project import DEFINITIONS, Project

DAY, OTHER_DAY, MONTH = "orders@2024-01-29", "orders@2024-01-30", "revenue@2024-01-01"


def listed(project: Project, *arguments: str) -> list[str]:
    return [ref for want in project.ask("want", "list", *arguments) for ref in want["refs"]]


def test_wants_are_listed_by_ref_dataset_state_source_and_time(project: Project) -> None:
    project.call("want", "create", DAY, OTHER_DAY, MONTH)
    before = project.queries.head().seq
    (want,) = project.ask("want", "list", "--ref", DAY)
    project.call("want", "cancel", want["id"])

    assert listed(project, "--limit", "1") == [MONTH]
    assert listed(project, "--dataset", "orders") == [OTHER_DAY]
    assert listed(project, "--dataset", "orders", "--as-of", str(before)) == [OTHER_DAY, DAY]
    assert listed(project, "--state", "canceled") == [DAY]
    assert sorted(listed(project, "--state", "Canceled", "--state", "Idle")) == [DAY, OTHER_DAY, MONTH]
    assert listed(project, "--source", "user", "--ref", MONTH) == [MONTH]
    assert "No wants match." in project.call("want", "list", "--source", "schedule").out
    (then,) = project.ask("want", "show", want["id"], "--as-of", str(before))
    assert then["state"] == "Idle"


def test_a_day_that_changed_definitions_added_can_be_wanted_before_the_next_tick(project: Project) -> None:
    """Rule 5.7"""
    project.call("want", "create", DAY)
    added = "orders@2024-03-01"
    refused = project.call("want", "create", added)

    project.define(DEFINITIONS.replace('"2024-01-29", end_date="2024-03-01"', '"2024-01-29", end_date="2024-03-02"'))
    (want,) = project.ask("want", "create", added)

    assert (refused.code, "There is no partition" in refused.err) == (2, True)
    assert want["refs"] == [added]


def test_wants_of_job_runs_are_listed_on_request_alone(project: Project) -> None:
    """findings/first-use.md 14"""
    project.build(MONTH)

    assert listed(project, "--all") == [MONTH]
    assert DAY in listed(project, "--all", "--derivative")
    assert MONTH not in listed(project, "--all", "--source", "job run")


@pytest.mark.parametrize(
    ("arguments", "hint"),
    [
        (("--dataset", "order"), "orders"),
        (("--state", "Idel"), "idle"),
        (("--as-of", "99999"), "the log ends"),
    ],
)
def test_a_misspelled_filter_is_refused(known_project: Project, arguments: tuple[str, ...], hint: str) -> None:
    done = known_project.call("want", "list", *arguments)

    assert done.code == 2
    assert hint in done.err


def test_want_show_gives_comment_derivative_wants_and_the_first_cause(project: Project) -> None:
    project.fail("2024-01-30")
    project.call("build", MONTH, "--comment", "for the board")
    (want,) = project.ask("want", "list", "--all")

    (answer,) = project.ask("want", "show", want["id"])
    lines = project.call("want", "show", want["id"]).out.splitlines()

    assert (answer["comment"], answer["source"], answer["state"]) == ("for the board", "user", "UpstreamFailed")
    assert [cause["ref"] for cause in answer["causes"]] == [want["id"], MONTH, OTHER_DAY]
    (derivative,) = answer["derivative_wants"]
    assert (derivative["refs"], derivative["state"]) == ([OTHER_DAY], "Failed")
    assert f"{want['id']}, of source user: for the board" in lines
    assert lines[-1] == f"  derivative want {derivative['id']} for {OTHER_DAY}: Failed"


def test_an_open_want_is_shown_with_the_refs_it_waits_for(project: Project) -> None:
    project.call("want", "create", DAY, MONTH, "--together")
    project.build(DAY)
    (want,) = project.ask("want", "list")

    (answer,) = project.ask("want", "show", want["id"])

    assert answer["waits_for"] == [MONTH]
    assert answer["causes"][0]["ref"] == MONTH
    assert answer["derivative_wants"] == []


def test_a_long_request_explains_its_first_wants_and_names_the_number_of_others(project: Project) -> None:
    created = project.ask("want", "create", *(f"orders@2024-02-{day:02}" for day in range(1, MAX_EXPLAINED + 3)))
    request = created[0]["request_id"]

    rows = project.ask("want", "show", request)

    assert [row["id"] for row in rows] == [want["id"] for want in created]
    assert ["causes" in row for row in rows] == [True] * MAX_EXPLAINED + [False] * 2
    assert "2 more wants: `databuild want show WANT` explains one." in project.call("want", "show", request).out
