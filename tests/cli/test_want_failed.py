"""What `databuild want` prints of failed wants: the failures behind them, and what stays wanted (rules 6.14, 6.15)."""

from __future__ import annotations

from pathlib import Path

from tests.support.command import databuild
from tests.support.world import World

from .conftest import INPUTS


def test_a_canceled_want_names_what_stays_wanted_and_for_which_want(world: World, tmp_path: Path) -> None:
    month, report = world.want("month"), world.want("report")
    world.miss("month", "bad", "good")
    world.miss("report", "bad", "good")
    world.fail("bad", error="no data")

    first = databuild(tmp_path, tmp_path, "want", "cancel", month)
    last = databuild(tmp_path, tmp_path, "want", "cancel", report, "--json")

    assert first.out.splitlines() == [
        "Canceled 0 wants.",
        f"good stays wanted: it is kept for want {report[-8:]} too.",
    ]
    assert [(want["refs"], want["kept_for_others"]) for want in last.json] == [(["report"], []), (["good"], [])]
    assert world.due() == []


def test_of_many_refs_that_stay_wanted_the_first_are_named(world: World, tmp_path: Path) -> None:
    month, report = world.want("month"), world.want("report")
    world.miss("month", "bad", *INPUTS)
    world.miss("report", "bad", *INPUTS)
    world.fail("bad", error="no data")

    lines = databuild(tmp_path, tmp_path, "want", "cancel", month).out.splitlines()

    assert [line.split()[0] for line in lines[1:-1]] == INPUTS[:5]
    assert all(line.endswith(f"it is kept for want {report[-8:]} too.") for line in lines[1:-1])
    assert lines[-1] == "2 more refs stay wanted for others; --json names each."


def test_the_json_of_a_canceled_want_names_what_stays_wanted(world: World, tmp_path: Path) -> None:
    month, report = world.want("month"), world.want("report")
    world.miss("month", "bad", "good")
    world.miss("report", "bad", "good")
    world.fail("bad", error="no data")

    (want,) = databuild(tmp_path, tmp_path, "want", "cancel", month, "--json").json

    assert want["kept_for_others"] == [{"ref": "good", "want": report}]


def test_the_json_of_a_new_want_names_the_first_failure_and_whether_it_fails_fast(world: World, tmp_path: Path) -> None:
    world.want("month")
    world.miss("month", "bad")
    world.fail("bad", error="no data")

    done = databuild(tmp_path, tmp_path, "want", "create", "month", "--fail-fast", "--json")

    (want,) = done.json
    assert want["hints"][-1] in done.err.splitlines()
    assert want["failed_first"] == [{"ref": "bad", "why": "no data", "n_waiting": 1}]
    assert want["hints"][-1] == "Once that is repaired, this opens all of it: databuild retry bad"
    assert want["fail_fast"] is True
