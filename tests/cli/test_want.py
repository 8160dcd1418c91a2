"""`databuild want list`: filters, the wants of job runs, and looking back (rule 5.9)."""

from __future__ import annotations

import pytest

from .conftest import Project

pytestmark = pytest.mark.long

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


def test_wants_of_job_runs_are_listed_on_request_alone(project: Project) -> None:
    project.build(MONTH)

    assert listed(project, "--all") == [MONTH]
    assert DAY in listed(project, "--all", "--derivative")
    assert MONTH not in listed(project, "--all", "--source", "job run")


@pytest.mark.parametrize(
    ("arguments", "hint"),
    [
        (("--ref", "order@2024-01-29"), "orders"),
        (("--ref", "orders@2023-01-01"), "begin with 2024-01-29"),
        (("--dataset", "order"), "orders"),
        (("--source", "schedul"), "schedule"),
        (("--state", "Idel"), "idle"),
        (("--as-of", "99999"), "the log ends"),
    ],
)
def test_a_misspelled_filter_is_refused(project: Project, arguments: tuple[str, ...], hint: str) -> None:
    project.call("tick")

    done = project.call("want", "list", *arguments)

    assert done.code == 2
    assert hint in done.err
