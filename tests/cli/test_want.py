"""`databuild want list` and `show`: filters, the wants of job runs, and looking back (rule 5.9)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from databuild_dagster.engine.why.want_report import MAX_EXPLAINED
from databuild_dagster.model.commands import CreateWants, RegisterDatasets
from tests.support.catalog import HERE, dataset
from tests.support.command import databuild
from tests.support.project import DEFINITIONS, Project
from tests.support.world import World


def ask(home: Path, *arguments: str) -> Any:
    done = databuild(home, home, "want", *arguments, "--json")
    assert done.code == 0, done
    return done.json


def listed(home: Path, *arguments: str) -> list[str]:
    return [ref for want in ask(home, "list", *arguments) for ref in want["refs"]]


def test_wants_are_listed_by_ref_dataset_state_source_and_time(world: World, tmp_path: Path) -> None:
    canceled, *_ = (world.want(name) for name in ("good", "bad", "month"))
    before = world.seq
    world.cancel_want(canceled)

    assert listed(tmp_path) == ["month", "bad"]
    assert listed(tmp_path, "--limit", "1") == ["month"]
    assert listed(tmp_path, "--dataset", "good") == []
    assert listed(tmp_path, "--dataset", "good", "--as-of", str(before)) == ["good"]
    assert listed(tmp_path, "--state", "canceled") == ["good"]
    assert listed(tmp_path, "--state", "Canceled", "--state", "Idle") == ["month", "bad", "good"]
    assert listed(tmp_path, "--source", "user", "--ref", "month") == ["month"]
    assert "No wants match." in databuild(tmp_path, tmp_path, "want", "list", "--source", "schedule").out
    (then,) = ask(tmp_path, "show", canceled, "--as-of", str(before))
    assert then["state"] == "Idle"


def test_a_day_that_changed_definitions_added_can_be_wanted_before_the_next_tick(project: Project) -> None:
    """Rule 5.7"""
    project.call("want", "create", "orders@2024-01-29")
    added = "orders@2024-03-01"
    refused = project.call("want", "create", added)

    project.define(DEFINITIONS.replace('"2024-01-29", end_date="2024-03-01"', '"2024-01-29", end_date="2024-03-02"'))
    (want,) = project.ask("want", "create", added)

    assert (refused.code, "There is no partition" in refused.err) == (2, True)
    assert want["refs"] == [added]


def test_wants_of_job_runs_are_listed_on_request_alone(world: World, tmp_path: Path) -> None:
    """findings/first-use.md 14"""
    world.want("month")
    world.miss("month", "bad")

    assert listed(tmp_path) == ["month"]
    assert listed(tmp_path, "--all", "--derivative") == ["bad", "month"]
    assert listed(tmp_path, "--source", "job run") == ["bad"]


def test_only_open_wants_of_now_are_followed_by_a_warning_that_no_orchestrator_ticks(
    world: World, tmp_path: Path
) -> None:
    """Rule 11.4"""

    def warns(*arguments: str) -> bool:
        return "Warning: no orchestrator of location" in databuild(tmp_path, tmp_path, "want", *arguments).err

    created = databuild(tmp_path, tmp_path, "want", "create", "good")
    seq = str(world.seq)

    assert "Warning: no orchestrator of location" in created.err
    assert created.out.startswith("Recorded 1 want as request ")
    assert warns("list")
    assert not warns("list", "--as-of", seq)
    world.live("good")
    assert not warns("list", "--all")


def test_want_show_gives_comment_derivative_wants_and_the_first_cause(world: World, tmp_path: Path) -> None:
    (want,) = world.handle(CreateWants(wants=(("month",),), comment="for the board")).want_ids
    world.miss("month", "bad")
    world.fail("bad", error="no data")

    (answer,) = ask(tmp_path, "show", want)
    lines = databuild(tmp_path, tmp_path, "want", "show", want).out.splitlines()

    assert (answer["comment"], answer["source"], answer["state"]) == ("for the board", "user", "UpstreamFailed")
    assert "for the board" in databuild(tmp_path, tmp_path, "want", "list", "--all", "--wide").out
    assert [cause["ref"] for cause in answer["causes"]] == [want, "month", "bad"]
    (derivative,) = answer["derivative_wants"]
    assert (derivative["refs"], derivative["state"]) == (["bad"], "Failed")
    assert [line.split()[0] for line in lines[:2]] == ["want", want[-8:]]
    assert f"{want}, of source user: for the board" in lines
    assert "    bad: " in "\n".join(lines)
    assert lines[-1] == f"  derivative want {derivative['id']} for bad: failed"


def test_a_request_has_a_state_that_follows_from_its_wants(world: World, tmp_path: Path) -> None:
    """Seed 001: RECEIVED to COMPLETED or FAILED; a request ends when its wants end."""
    request = world.handle(CreateWants(wants=(("good",), ("bad",)))).request_id
    received = world.seq

    def state(*options: str) -> set[str]:
        return {want["request_state"] for want in ask(tmp_path, "show", request, *options)}

    assert state() == {"Received"}
    world.live("good")
    assert state() == {"Executing"}
    assert f"Request {request}: executing." in databuild(tmp_path, tmp_path, "want", "show", request).out.splitlines()
    world.fail("bad")
    assert state() == {"Failed"}
    assert state("--as-of", str(received)) == {"Received"}


def test_an_open_want_is_shown_with_the_refs_it_waits_for(world: World, tmp_path: Path) -> None:
    want = world.want("good", "month")
    world.live("good")

    (answer,) = ask(tmp_path, "show", want)

    assert answer["waits_for"] == ["month"]
    assert answer["causes"][0]["ref"] == "month"
    assert answer["derivative_wants"] == []


def test_a_long_request_explains_its_first_wants_and_names_the_number_of_others(world: World, tmp_path: Path) -> None:
    many = [dataset(f"asset_{n:02}") for n in range(MAX_EXPLAINED + 2)]
    world.handle(RegisterDatasets(location=HERE, datasets=(*world.specs, *many)))
    created = ask(tmp_path, "create", *(spec.asset for spec in many))
    request = created[0]["request_id"]

    rows = ask(tmp_path, "show", request)

    assert [row["id"] for row in rows] == [want["id"] for want in created]
    assert ["causes" in row for row in rows] == [True] * MAX_EXPLAINED + [False] * 2
    text = databuild(tmp_path, tmp_path, "want", "show", request).out
    assert "2 more wants: `databuild want show WANT` explains one." in text
