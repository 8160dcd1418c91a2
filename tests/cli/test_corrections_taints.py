"""`taint --downstream`, `revert`, `retry`, `show --full`, and looking back with --as-of (rules 7.3, 7.4, 6.6, 3.2, 4.6)."""

from pathlib import Path

import pytest

from databuild_dagster.model.commands import CreateWants, TaintPartitions
from tests.support.command import databuild
from tests.support.project import DEFINITIONS, Project
from tests.support.world import World

DAYS = [f"orders@2024-01-{day}" for day in (29, 30, 31)]
DAY, MONTH = DAYS[0], "revenue@2024-01-01"


def state(project: Project, ref: str, *options: str) -> str | None:
    answer: dict[str, str | None] = project.ask("show", ref, *options)
    return answer["state"]


def uuid(project: Project, ref: str) -> str:
    found: str = project.ask("show", ref)["canonical"]["uuid"]
    return found


def test_a_taint_goes_downstream_as_its_dry_run_said_and_can_be_reverted(project: Project) -> None:
    project.build(MONTH)
    before = project.queries.events.head().seq
    first = {ref: uuid(project, ref) for ref in (DAY, MONTH)}

    dry = project.ask("taint", DAY, "--reason", "the till was broken", "--downstream", "--dry-run")
    assert {name: dry[name] for name in ("would_taint", "by_dataset", "refs")} == {
        "would_taint": 2,
        "by_dataset": {"orders": 1, "revenue": 1},
        "refs": [DAY, MONTH],
    }
    previewed = project.call("taint", DAY, "--reason", "the till was broken", "--downstream", "--dry-run").out
    # The want of a person is counted as `status` does, and those of job runs apart.
    assert len(dry["wants_reopened"]) == 2
    assert "1 want would open again, and so would 1 want that job runs recorded for inputs." in previewed
    assert project.queries.events.head().seq == before
    answer = project.ask("taint", DAY, "--reason", "the till was broken", "--downstream")
    assert sorted(answer["refs"]) == sorted(dry["refs"])
    assert [state(project, ref) for ref in (*DAYS, MONTH)] == ["Tainted", "Live", "Live", "Tainted"]

    # Looking back.
    assert state(project, MONTH, "--as-of", str(before)) == "Live"
    assert project.ask("show", MONTH, "--as-of", str(before))["canonical"]["uuid"] == first[MONTH]
    then = {
        partition["ref"]: partition["state"]
        for partition in project.ask("partitions", "orders", "--as-of", str(before))
    }
    assert then[DAY] == "Live"
    (want,) = [want for want in project.ask("want", "list", "--all") if want["refs"] == [MONTH]]
    assert want["state"] == "Idle"
    (want,) = project.ask("want", "show", want["id"], "--as-of", str(before))
    assert want["state"] == "Successful"

    # Rebuilt, and back again.
    project.build(MONTH)
    assert uuid(project, MONTH) != first[MONTH]
    refused = project.call("revert", MONTH, "--to", first[MONTH], "--json")
    assert (refused.code, refused.json["error"]["type"]) == (2, "CannotRevert")
    project.ask("revert", MONTH, "--to", first[MONTH], "--force", "--reason", "the till was fine")
    assert uuid(project, MONTH) == first[MONTH]
    assert project.ask("read", MONTH) == [{"revenue": 12.0}]
    assert project.ask("history", MONTH)[-1]["why"] == f"readers went back to {first[MONTH]}"
    assert "the till was broken" in project.call("history", DAY, "--wide").out
    assert project.is_sound()


def test_the_history_says_who_asked_for_each_instance_and_why_it_ended(world: World, tmp_path: Path) -> None:
    """Rules 3.2, 5.1"""
    world.handle(CreateWants(wants=(("month",),), comment="the board's report"), actor="user:kate")
    world.miss("month", "good")
    world.live("good")
    world.handle(TaintPartitions(refs=("good",), reason="the till was broken"), actor="user:finn")
    own_want = world.handle(CreateWants(wants=(("good",),), comment="databuild build"), actor="user:finn").want_ids
    world.live("good")

    first, second = databuild(tmp_path, tmp_path, "history", "good", "--json").json
    text = databuild(tmp_path, tmp_path, "history", "good", "--wide").out

    asked = {(want["actor"], *want["refs"], want["comment"]) for want in first["asked_by"]}
    assert ("user:kate", "month", "the board's report") in asked
    assert first["why"].startswith("tainted by user:finn: the till was broken (")
    assert (first["canonical"], second["canonical"], second["why"]) == (False, True, None)
    (own,) = [item for item in second["asked_by"] if item["actor"] == "user:finn"]
    assert (own["source"], own["refs"], own["comment"]) == ("user", ["good"], "databuild build")
    assert (own["want"],) == tuple(own_want)
    assert "user:kate for month (the board's report)" in text
    assert "user:finn (databuild build)" in text


def test_the_state_of_what_lost_its_manifest_is_shown(project: Project) -> None:
    """Rules 4: readers see what is known, and what is not."""
    project.build(DAY)
    path = f"warehouse/orders/data/instance={uuid(project, DAY)}/manifest.json"
    (project.home / path).write_text("{")
    damaged = project.ask("show", DAY)
    (project.home / path).unlink()
    gone = project.ask("show", DAY)
    answer = project.call("show", DAY)

    assert (damaged["state"], gone["state"], gone["canonical"]["rows"], gone["canonical"]["files"]) == (
        "Live",
        "Live",
        2,
        [],
    )
    assert "cannot be read" in damaged["canonical"]["note"]
    assert "no manifest at" in gone["canonical"]["note"]
    assert answer.code == 0
    assert "live" in answer.out
    assert "no manifest at" in answer.out


def test_a_retry_opens_what_had_failed_and_wants_again_what_had_failed_of_it(world: World, tmp_path: Path) -> None:
    """Rule 6.6"""
    world.want("month")
    world.want("bad")
    world.miss("month", "bad")
    world.fail("bad", error="no data")

    done = databuild(tmp_path, tmp_path, "retry", "month", "--json")
    again = databuild(tmp_path, tmp_path, "retry", "month", "--json")

    assert (done.json["opened"], len(done.json["wants"])) == (["bad"], 1)
    assert "no orchestrator of location" in done.err, "a retry alone builds nothing"
    assert (again.code, again.json["error"]["type"]) == (2, "NothingToRetry")
    world.live("bad")
    assert "(never live)" in databuild(tmp_path, tmp_path, "show", "bad").out, "the failed attempt is no earlier data"


def test_the_taints_that_hold_are_listed_with_the_refs_and_can_be_removed(world: World, tmp_path: Path) -> None:
    world.live("good")
    taint = databuild(tmp_path, tmp_path, "taint", "good", "--reason", "a till", "--json").json["taint_id"]

    (held,) = databuild(tmp_path, tmp_path, "taint", "--list", "--json").json
    shown = databuild(tmp_path, tmp_path, "taint", "--list").out

    assert (held["taint_id"], held["reason"], held["refs"]) == (taint, "a till", ["good"])
    assert taint[-8:] in shown
    assert databuild(tmp_path, tmp_path, "untaint", taint[-8:]).code == 0
    assert databuild(tmp_path, tmp_path, "taint", "--list").out == "Nothing is tainted.\n"


def test_a_taint_says_which_wants_stay_ended(world: World, tmp_path: Path) -> None:
    """Rule 6.6"""
    world.want("bad")
    world.fail("bad")

    answer = databuild(tmp_path, tmp_path, "taint", "bad", "--reason", "mended")

    assert "1 want that failed because of it stays ended" in answer.out


@pytest.mark.feature("compare")
def test_a_receipt_lists_everything_an_instance_was_made_of_down_to_its_files(project: Project) -> None:
    """Rule 4.6"""
    project.build(MONTH)

    receipt = project.ask("show", "--full", MONTH)

    made_of = {instance["ref"]: instance for instance in receipt["instances"]}
    assert set(made_of) == {*DAYS, MONTH}
    assert receipt["uuid"] == made_of[MONTH]["uuid"] == uuid(project, MONTH)
    assert sorted(made_of[MONTH]["inputs"]) == sorted(made_of[day]["uuid"] for day in DAYS)
    (file,) = made_of[DAY]["files"]
    assert file["rows"] == 2
    assert file["checksum"]
    assert [name for name, _ in made_of[DAY]["schema"]] == ["day", "amount"]
    assert uuid(project, DAY)[-8:] in project.call("show", "--full", MONTH).out
    assert "1 ref built from it stays live, and stale" in project.call("taint", DAY, "--reason", "wrong").out
    missing = project.call("show", "--full", "orders@2024-02-01", "--json")
    assert (missing.code, missing.json["error"]["type"]) == (2, "NoReceipt")


def test_instances_that_older_code_has_built_are_found(project: Project) -> None:
    project.build(DAY)
    assert project.ask("partitions", "orders", "--outdated") == []
    project.define(DEFINITIONS.replace("(partitions_def=daily)", "(partitions_def=daily, code_version='2')", 1))
    project.call("admin", "tick")

    assert [partition["ref"] for partition in project.ask("partitions", "orders", "--outdated")] == [DAY]
    assert project.build(DAY, "--fresh")["launches"] == 1
    assert project.build(DAY, "--fresh")["launches"] == 0
    assert project.ask("partitions", "orders", "--outdated") == []


def test_instances_of_other_code_are_found_without_a_code_version(project: Project) -> None:
    """Rules 4.7, 8.7: `hold` is a part of the code of `orders`."""
    project.build(DAY)
    project.define("# A comment.\n" + DEFINITIONS.replace("for _ in range", "for attempt in range"))
    assert project.build(DAY, "--fresh")["launches"] == 0

    project.define(DEFINITIONS.replace("wait(0.01)", "wait(0.02)"))
    project.call("admin", "tick")

    (other,) = project.ask("plan", DAY)["other_code"]
    assert (other["asset"], other["changes"]) == ("orders", ["hold in definitions.py changed"])
    assert "hold in definitions.py changed" in project.call("plan", DAY).out
    assert project.build(DAY, "--fresh")["launches"] == 1
    assert project.build(DAY, "--fresh")["launches"] == 0
    assert "code hold in definitions.py" in project.call("diff", DAY).out
