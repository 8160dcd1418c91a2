"""`databuild partitions` and `databuild show` (rule 15)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from databuild_dagster.cli import partitions
from tests.support.command import databuild
from tests.support.project import Project
from tests.support.world import World

DAY, OTHER_DAY, MONTH = "orders@2024-01-29", "orders@2024-01-30", "revenue@2024-01-01"


def test_the_json_of_show_has_the_reason_the_taints_and_what_is_waited_for(world: World, tmp_path: Path) -> None:
    """findings/seeds.md 11"""
    world.miss("month", "bad")
    world.fail("bad", error="no data")
    world.live("good")
    world.taint("good", reason="the till was broken")

    def shown(ref: str) -> Any:
        return databuild(tmp_path, tmp_path, "show", ref, "--json").json["canonical"]

    failed, behind, tainted = map(shown, ("bad", "month", "good"))
    assert "no data" in failed["why"]
    assert (behind["state"], behind["waits_for"]) == ("UpstreamFailed", ["bad"])
    assert behind["why"] in databuild(tmp_path, tmp_path, "show", "month").out
    assert [taint["reason"] for taint in tainted["taints"]] == ["the till was broken"]
    assert {"retry_at", "stale", "previous_uuid", "live_since"} <= set(tainted)


def test_show_as_of_has_nothing_of_what_came_later(world: World, tmp_path: Path) -> None:
    """Rule 3.2"""
    began = str(world.seq)
    world.start("good")
    building = str(world.seq)
    world.succeed("good")

    def shown(*options: str) -> str:
        return databuild(tmp_path, tmp_path, "show", "good", *options).out

    then = databuild(tmp_path, tmp_path, "show", "good", "--as-of", building, "--json").json["canonical"]
    assert (then["state"], then["files"], then["rows"], then["inputs"]) == ("Building", [], None, [])
    assert not any(word in shown("--as-of", building) for word in ("live since", "rows", "files", "manifest"))
    assert shown("--as-of", began) == f"good was missing as of seq {began}.\n"
    assert all(word in shown() for word in ("live since", "rows", "files", "manifest"))


def test_show_as_of_names_what_a_ref_waited_for_and_why_it_had_failed(world: World, tmp_path: Path) -> None:
    """Rule 3.2"""

    def then(ref: str, seq: int) -> dict[str, Any]:
        found: dict[str, Any] = databuild(tmp_path, tmp_path, "show", ref, "--as-of", str(seq), "--json").json
        return found["canonical"]

    world.miss("month", "good", "bad")
    missed = world.seq
    world.live("good")
    world.fail("bad", error="no data")
    failed = world.seq
    world.taint("bad")

    assert (then("month", missed)["waits_for"], then("month", missed)["why"]) == (["bad", "good"], None)
    assert (then("month", failed)["waits_for"], then("month", failed)["state"]) == (["bad"], "UpstreamFailed")
    assert (then("bad", failed)["why"], then("bad", failed)["state"]) == (None, "Failed")


def test_as_of_an_event_within_a_command_is_as_of_the_end_of_the_command(world: World, tmp_path: Path) -> None:
    """Rule 3.2: no reader saw the miss without its want."""
    world.start("month")
    before = world.seq
    world.miss("month", "good")
    assert world.log(before) == ["JobRunDepMissed", "WantCreated"]

    answers = [
        databuild(tmp_path, tmp_path, "explain", "month", "--as-of", str(seq)).out for seq in (before + 1, before + 2)
    ]

    assert answers[0] == answers[1]
    assert f"as of seq {before + 2}" in answers[0]


def test_show_of_a_missing_ref_names_the_home_and_the_pause(world: World, tmp_path: Path) -> None:
    missing = databuild(tmp_path, tmp_path, "show", "good").out
    world.pause("good")
    paused = databuild(tmp_path, tmp_path, "show", "good").out

    begins = f"good is missing: nothing has built it yet in the home {tmp_path}."
    assert missing == f"{begins} `databuild build good` does.\n"
    assert paused.startswith(f"{begins} It is paused by")


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("--state", "tainted"), "No partition of orders is tainted."),
        (("--outdated",), "No partition of orders was built by other code."),
    ],
)
def test_a_list_without_partitions_names_what_was_asked_for(
    known_project: Project, arguments: tuple[str, ...], sentence: str
) -> None:
    """findings/first-use.md 25"""
    assert known_project.call("partitions", "orders", *arguments).out == f"{sentence}\n"


def test_days_that_are_alike_share_a_line_unless_each_is_asked_for(project: Project) -> None:
    project.fail("2024-01-30")
    project.call("build", DAY, OTHER_DAY)

    lines = project.call("partitions", "orders").out.splitlines()
    listed = project.call("partitions", "orders", "--list").out.splitlines()

    assert [line.split()[:3] for line in lines] == [
        ["ref", "partitions", "state"],
        [DAY, "1", "live"],
        [OTHER_DAY, "1", "failed"],
        ["orders@2024-01-31..2024-02-29", "30", "missing"],
    ]
    assert len(listed) == 1 + len(project.ask("partitions", "orders")) == 33


def test_of_many_lines_the_worst_are_printed_with_the_counts_of_all(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(partitions, "MAX_LINES", 2)
    project.fail("2024-01-30")
    project.call("build", DAY, OTHER_DAY)

    lines = project.call("partitions", "orders").out.splitlines()

    assert [line.split()[0] for line in lines[1:3]] == [OTHER_DAY, DAY]
    assert lines[3:] == [
        "These are the worst 2 of 3 lines: 1 failed, 1 live, 30 missing. --list prints all; --state and a RANGE fewer."
    ]
