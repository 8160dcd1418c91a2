"""`databuild history --job-runs` names instances; `show` and `history` the instance before (rule 2.3)."""

from __future__ import annotations

from pathlib import Path

import pytest

from databuild_dagster import (
    get_builds_for_partition,
    get_partition_by_uuid,
    get_wants_for_partition,
)
from databuild_dagster.data.read_plan import InvalidAsOf
from tests.support.command import databuild
from tests.support.world import World


def test_job_runs_show_and_history_name_instances(world: World, tmp_path: Path) -> None:
    old = world.succeed("good")
    world.taint("good")
    new = world.succeed("good")

    second, first = databuild(tmp_path, tmp_path, "history", "--job-runs", "--json").json
    shown = databuild(tmp_path, tmp_path, "show", "good")
    history = databuild(tmp_path, tmp_path, "history", "good", "--json").json

    assert (first["instances"], second["instances"]) == ([old], [new])
    assert new in databuild(tmp_path, tmp_path, "history", "--job-runs", "--wide").out
    assert [build.instances for build in get_builds_for_partition("good", home=tmp_path)] == [(old,), (new,)]
    assert databuild(tmp_path, tmp_path, "show", "good", "--json").json["canonical"]["previous_uuid"] == old
    assert old in shown.out
    assert [(row["uuid"], row["previous_uuid"]) for row in history] == [(old, None), (new, old)]
    assert "previous" in databuild(tmp_path, tmp_path, "history", "good", "--wide").out


def test_job_runs_are_listed_by_state_job_ref_and_time(world: World, tmp_path: Path) -> None:
    world.live("good")
    world.fail("bad")
    world.start("month")

    def listed(*options: str) -> list[str]:
        return [
            run["refs"][0] for run in databuild(tmp_path, tmp_path, "history", "--job-runs", *options, "--json").json
        ]

    assert listed("--state", "failed", "--state", "running") == ["month", "bad"]
    assert listed("--job", "good") == listed("--ref", "good") == ["good"]
    assert listed("--since", "2020-01-01T00:00:00Z", "--state", "succeeded") == ["good"]
    assert databuild(tmp_path, tmp_path, "history", "--job-runs", "--since", "2999-01-01T00:00:00Z").out == (
        "No job run matches.\n"
    )
    unknown = databuild(tmp_path, tmp_path, "history", "--job-runs", "--job", "goood", "--json")
    assert (unknown.code, unknown.json["error"]["type"]) == (2, "NotFound")
    unknown = databuild(tmp_path, tmp_path, "history", "--job-runs", "--ref", "goood", "--json")
    assert (unknown.code, unknown.json["error"]["type"]) == (2, "UnknownAsset")


def test_a_job_run_is_shown_with_its_outputs_and_who_asked(world: World, tmp_path: Path) -> None:
    world.want("month")
    world.miss("month", "good")
    world.start("good")
    missed = world.queries.job_runs.newest()[-1].id

    shown = databuild(tmp_path, tmp_path, "show", "--job-run", missed[-8:], "--json").json
    text = databuild(tmp_path, tmp_path, "show", "--job-run", world.job_run("good")).out

    (output,) = shown["outputs"]
    assert (shown["id"], shown["state"], shown["asked_by"]) == (missed, "DepMissed", ["tester"])
    assert (output["ref"], output["state"], output["missed"]) == ("month", "UpstreamBuilding", ["good"])
    assert output["uuid"] == shown["instances"][0]
    assert "asked by     tester" in text.splitlines()
    assert text.splitlines()[-1] == f"  good  building  {world.uuid('good')}"


def test_an_instance_and_its_wants_are_shown_as_they_were_when_a_job_run_ran(world: World, tmp_path: Path) -> None:
    """Rule 3.2, findings/seeds.md 7: `history` and the lookups by uuid and by ref take a moment."""
    world.want("good")
    world.start("good")
    began = world.seq
    made = world.succeed("good")
    world.taint("good")
    then = world.seq
    world.live("good")

    def state_at(seq: int) -> str | None:
        instance = get_partition_by_uuid(made, as_of=seq, home=tmp_path)
        return None if instance is None else instance.state.value

    (as_it_was,) = databuild(tmp_path, tmp_path, "history", "good", "--as-of", str(began), "--json").json

    assert (as_it_was["state"], as_it_was["canonical"], as_it_was["live_since"]) == ("Building", True, None)
    assert len(databuild(tmp_path, tmp_path, "history", "good", "--json").json) == 2
    assert (state_at(began), state_at(then)) == ("Building", "Tainted")
    (want,) = get_wants_for_partition("good", as_of=began, home=tmp_path)
    assert want.state.value == "Building"
    assert {want.state.value for want in get_wants_for_partition("good", home=tmp_path)} == {"Successful"}
    nothing = databuild(tmp_path, tmp_path, "history", "good", "--as-of", "1")
    assert nothing.out == "Nothing had built good as of seq 1.\n"
    with pytest.raises(InvalidAsOf):
        get_partition_by_uuid(made, as_of=99_999, home=tmp_path)


def test_canceling_a_build_names_the_refs_and_wants_that_wait_for_it(world: World, tmp_path: Path) -> None:
    """Rule 6.10: before it acts, with the command that opens all of it again."""
    want = world.want("month")
    world.miss("month", "good")
    world.start("good")

    done = databuild(tmp_path, tmp_path, "want", "cancel", "--job-runs", world.job_run("good"), "--json")

    (canceled,) = done.json
    assert (canceled["waiting_refs"], canceled["waiting_wants"]) == (["month"], [want])
    assert done.err.startswith(
        "good fails, and month, which waits for it, with 1 want. `databuild retry good` opens all"
    )
    assert world.states("month", "good") == ["UpstreamFailed", "Failed"]


def test_a_cancel_names_the_dagster_runs_that_wait_and_build_it_now(world: World, tmp_path: Path) -> None:
    """Rules 6.10, 8.3, decision 0014"""
    world.claim("good", dagster_run_id="builder")
    world.claim("good", dagster_run_id="waiter")
    (running,) = databuild(tmp_path, tmp_path, "history", "--job-runs", "--open", "--json").json

    done = databuild(tmp_path, tmp_path, "want", "cancel", "--job-runs", running["id"])

    assert running["dagster_run_id"] == "builder"
    assert done.out.splitlines() == [
        "Canceled 1 job run.",
        "Dagster run waiter waits for good and builds it now; terminate that run too if no run should.",
    ]
    assert world.derivative_wants("good") == []
