"""`build --rebuild`, `history --requests`, and the same from Python: who asked, who built, what it was worth (rules 8)."""

import sqlite3
from pathlib import Path
from typing import Any

import pytest

import databuild_dagster as db
from databuild_dagster.bindings.local.building import Workshop
from databuild_dagster.engine.tick import TickReport
from databuild_dagster.model.errors import UnknownAsset
from tests.support.command import databuild
from tests.support.project import MAX_SECONDS, Project
from tests.support.world import World

DAY, NEXT_DAY, MONTH = "orders@2024-01-29", "orders@2024-01-30", "revenue@2024-01-01"


def test_the_ledger_lists_what_each_request_got_by_ref_and_by_request(world: World, tmp_path: Path) -> None:
    """Rule 8.7"""

    def entries(*options: str) -> Any:
        return databuild(tmp_path, tmp_path, "history", "--requests", *options, "--json").json

    first = world.want("good")
    uuid = world.succeed("good")
    again = world.want("good")
    world.want("bad")

    requests = [world.want_view(want).request_id for want in (again, first)]
    assert [(entry["requester"], entry["kind"], entry["outcome"]) for entry in entries("--ref", "good")] == [
        (requests[0], "reused", "live"),
        (requests[1], "built", "live"),
    ]
    assert len(entries()) == 3
    assert [entry["ref"] for entry in entries("--limit", "1")] == ["bad"]
    (entry,) = entries("--request", requests[0])
    assert (entry["ref"], entry["uuid"]) == ("good", uuid)
    assert entry["message"] == "Delegated to historical build - partition already available"
    assert entry["message"] in databuild(tmp_path, tmp_path, "history", "--requests", "--wide").out
    assert (
        "No request has asked for month yet."
        in databuild(tmp_path, tmp_path, "history", "--requests", "--ref", "month").out
    )


@pytest.mark.long("another process builds an input")
def test_a_build_continues_when_another_process_ends_just_after_its_tick(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The tick sees the launch of the other process; the look at what is out sees that launch no more."""
    project.hold("2024-01-29")
    builder = project.start("build", DAY)
    project.wait_until_held("2024-01-29")
    tick = Workshop.tick

    def tick_before_the_other_ends(workshop: Workshop, *arguments: Any) -> TickReport:
        report = tick(workshop, *arguments)
        if report.idle:
            project.release("2024-01-29")
            builder.communicate(timeout=MAX_SECONDS)
        return report

    monkeypatch.setattr(Workshop, "tick", tick_before_the_other_ends)
    built = project.build(MONTH)

    assert builder.returncode == 0
    assert built["refs"] == {"live": 1, "failed": 0}


def test_wrong_questions_are_refused_with_one_sentence(known_project: Project) -> None:
    unknown = known_project.call("history", "--requests", "--request", "nothing", "--json")
    both = known_project.call("history", "--requests", "--request", "a", "--ref", "b")
    no_asset = known_project.call("history", "--requests", "--ref", "odrers@2024-01-29", "--json")

    assert (unknown.code, unknown.json["error"]["message"]) == (2, "There is no request 'nothing'.")
    assert (both.code, "exclude each other" in both.err) == (2, True)
    assert (no_asset.code, no_asset.json["error"]["type"]) == (2, "UnknownAsset")
    assert known_project.ask("history", "--requests", "--ref", DAY) == known_project.ask("history", "--requests") == []
    assert "No request has asked for anything yet." in known_project.call("history", "--requests").out


def test_current_state_is_asked_from_python_by_the_names_of_the_design(project: Project) -> None:
    """Rules 13"""
    project.fail("2024-01-30")
    done = project.call("build", DAY, NEXT_DAY, "--json")
    assert done.code == 1
    home = str(project.home)

    canonical = db.get_canonical_partition(DAY, home=home)
    assert canonical is not None
    assert (
        canonical.uuid
        == db.get_canonical_partition_uuid(DAY, home=home)
        == project.ask("show", DAY)["canonical"]["uuid"]
    )
    instance = db.get_partition_by_uuid(canonical.uuid or "", home=home)
    assert instance is not None
    assert (instance.ref, instance.job_run) == (DAY, canonical.job_run)
    assert db.derive_partition_uuid(canonical.job_run or "", DAY) == canonical.uuid
    assert str(db.get_latest_partition_status(NEXT_DAY, home=home)) == "Failed"
    assert db.get_latest_partition_status("orders@2024-01-31", home=home) is None
    assert [want.request_id for want in db.get_wants_for_partition(DAY, home=home)] == [done.json["request_id"]]
    (job_run,) = [job_run for job_run in project.ask("history", "--job-runs") if job_run["refs"] == [DAY]]
    built_by = db.get_build_request_for_available_partition(DAY, home=home)
    assert built_by == job_run["dagster_run_id"]
    (entry,) = [entry for entry in project.ask("history", "--requests", "--request", built_by) if entry["ref"] == DAY]
    assert (entry["requester"], entry["kind"], entry["outcome"]) == (built_by, "built", "live")
    assert db.get_build_request_for_available_partition(NEXT_DAY, home=home) is None
    assert db.get_active_builds_for_partition(DAY, home=home) == []
    coordination = db.check_build_coordination([DAY, NEXT_DAY, "orders@2024-01-31"], home=home)
    assert (coordination.build, coordination.join) == (("orders@2024-01-31",), {})
    assert coordination.reuse == {DAY: canonical.uuid}
    assert "no orders on 2024-01-30" in coordination.refused[NEXT_DAY]
    with pytest.raises(UnknownAsset, match="'odrers'"):
        db.check_build_coordination([DAY, "odrers@2024-01-29"], home=home)


def test_active_builds_and_available_partitions_are_views_of_the_database(project: Project) -> None:
    """Rules 13: read-only, for every SQL client."""
    project.build(DAY)
    project.claim(NEXT_DAY)

    with sqlite3.connect(f"file:{project.home}/databuild.db?mode=ro", uri=True) as connection:
        active = connection.execute("SELECT partition_ref, state FROM databuild_active_builds").fetchall()
        available = connection.execute("SELECT partition_ref, uuid FROM databuild_available_partitions").fetchall()

    assert active == [(NEXT_DAY, "Building")]
    (build,) = db.get_active_builds_for_partition(NEXT_DAY, home=project.home)
    assert build.instances == (project.ask("show", NEXT_DAY)["canonical"]["uuid"],)
    assert available == [(DAY, project.ask("show", DAY)["canonical"]["uuid"])]
