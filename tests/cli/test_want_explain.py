"""`databuild explain`: why something is, or is not, being built, back to the first cause (rules 15)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from databuild_dagster.cli.want import cause_lines
from databuild_dagster.engine.why.explain import Cause
from tests.support.command import databuild
from tests.support.world import World


def explain(home: Path, *arguments: str) -> Any:
    done = databuild(home, home, "explain", *arguments, "--json")
    assert done.code == 0, done
    return done.json


def test_a_wait_is_followed_to_the_failure_behind_it(world: World, tmp_path: Path) -> None:
    want = world.want("month")
    world.miss("month", "bad")
    job_run = world.job_run("bad")
    world.fail("bad", error="no data")

    answer = explain(tmp_path, "month")
    lines = databuild(tmp_path, tmp_path, "explain", want).out.splitlines()

    first, second = answer["causes"]
    assert (answer["ref"], answer["state"]) == ("month", "UpstreamFailed")
    assert first == {
        "ref": "month",
        "why": "needs bad, which failed; `databuild retry month` opens what failed first",
        "depth": 0,
    }
    assert (second["ref"], second["depth"]) == ("bad", 1)
    assert second["why"].startswith(f"failed in job run {job_run} with: no data")
    assert lines[0] == f"{want}  upstream failed"
    assert lines[2] == "  month: needs bad, which failed; `databuild retry month` opens what failed first"
    assert lines[3].startswith(f"    bad: failed in job run {job_run[-8:]} with: no data")


def test_several_refs_and_the_wants_of_a_request_are_explained_one_by_one(world: World, tmp_path: Path) -> None:
    created = databuild(tmp_path, tmp_path, "want", "create", "good", "bad", "--json").json

    of_refs = databuild(tmp_path, tmp_path, "explain", "good", "report").out.splitlines()
    of_request = explain(tmp_path, created[0]["request_id"])
    text_of_request = databuild(tmp_path, tmp_path, "explain", created[0]["request_id"]).out.splitlines()

    assert [line for line in of_refs if line and not line.startswith(" ")] == ["good  missing", "report  missing"]
    assert (of_request["state"], of_request["wants"]) == ("Idle", {"Idle": 2})
    assert text_of_request[0] == f"{created[0]['request_id']}  idle (2 idle wants)"


def test_an_explanation_has_at_most_30_lines() -> None:
    causes = tuple(Cause(f"ref_{n}", f"it is {'very ' * n}late", 0) for n in range(32))

    lines = list(cause_lines(causes))

    assert len(lines) == 31
    assert lines[-1] == "  and 2 more lines; --json has every cause"


def test_one_can_look_back_at_why_it_was_not_built(world: World, tmp_path: Path) -> None:
    """Rule 3.2"""
    began = world.seq
    want = world.want("good", ttl=None)
    then = world.seq
    before = explain(tmp_path, want)
    world.cancel_want(want)

    assert explain(tmp_path, want)["state"] == "Canceled"
    # The log does not have the ticks, so looking back leaves out that no orchestrator runs.
    looked_back = explain(tmp_path, want, "--as-of", str(then))
    (cause,) = looked_back["causes"]
    assert cause["why"] == f"{before['causes'][0]['why']}: the next tick launches it"
    assert looked_back == {**before, "causes": [cause]}
    answer = databuild(tmp_path, tmp_path, "explain", "good", "--as-of", str(then)).out.splitlines()
    assert answer[0] == f"good  missing as of seq {then}"
    assert answer[1].endswith(": the next tick launches it")
    assert databuild(tmp_path, tmp_path, "explain", want, "--as-of", str(began)).code == 2
