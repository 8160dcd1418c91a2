"""`databuild status`: assets by state, open wants, and whether an orchestrator ticks (rules 15)."""

from pathlib import Path

from databuild_dagster.bindings.registry.instance import engine_for, open_instance
from databuild_dagster.calls.status import MAX_WANTS
from databuild_dagster.cli.status import MAX_ASSETS
from databuild_dagster.engine.orchestrator_notes import note_tick
from databuild_dagster.engine.tick_pass import TickLimits
from databuild_dagster.model.commands import ChangeSetAside, RegisterDatasets
from databuild_dagster.model.events import AsideFact
from tests.support.catalog import HERE, dataset
from tests.support.command import databuild
from tests.support.project import Project
from tests.support.world import World

SCREEN_LINES = 50


def counts_of(answer: dict, asset: str) -> dict[str, int]:
    (found,) = [row for row in answer["assets"] if row["asset"] == asset]
    return {name: n for name, n in found.items() if name != "asset" and n}


def test_status_counts_the_partitions_of_each_asset_by_state(project: Project) -> None:
    project.fail("2024-01-30")
    project.build("orders@2024-01-29", "orders@2024-01-31")
    project.call("build", "revenue@2024-01-01")
    project.call("taint", "orders@2024-01-31", "--reason", "wrong")

    answer = project.ask("status")

    assert counts_of(answer, "orders") == {"live": 1, "tainted": 1, "failed": 1, "missing": 29}
    assert counts_of(answer, "revenue") == {"failed": 1, "missing": 1}
    assert counts_of(answer, "wrong_type") == {"missing": 1}


def test_status_shows_the_open_wants_of_people_without_those_of_job_runs(world: World, tmp_path: Path) -> None:
    want = world.want("month", sla=3600.0)
    world.miss("month", "bad")
    world.start("bad")

    answer = databuild(tmp_path, tmp_path, "status", "--json").json
    lines = databuild(tmp_path, tmp_path, "status").out.splitlines()

    deadline = answer["wants"][0]["deadline"]
    assert answer["open_wants"] == 1
    assert answer["wants"] == [
        {"id": want, "refs": ["month"], "state": "UpstreamBuilding", "source": "user", "deadline": deadline}
    ]
    assert [want[-8:], "month", "upstream", "building", "user", deadline] in [line.split() for line in lines]
    assert counts_of(answer, "bad") == {"building": 1}
    assert counts_of(answer, "month") == {"waiting": 1}


def test_status_names_pauses_and_waiting_refs_without_an_open_want(world: World, tmp_path: Path) -> None:
    world.pause("good", reason="the till sends half")
    want = world.want("month")
    world.miss("month", "bad")
    world.cancel_want(want)

    answer = databuild(tmp_path, tmp_path, "status", "--json").json
    lines = databuild(tmp_path, tmp_path, "status").out.splitlines()

    assert [(pause["asset"], pause["refs"], pause["reason"]) for pause in answer["paused"]] == [
        ("good", None, "the till sends half")
    ]
    assert answer["unwanted"] == {"count": 1, "refs": ["month"]}
    assert any(line.startswith("good: paused by") for line in lines)
    assert any(line.endswith("databuild build month") for line in lines)


def test_status_names_what_is_set_aside_with_its_reason(world: World, tmp_path: Path) -> None:
    """Rule 11.5"""
    fact = AsideFact(kind="ref", names=("bad",), reason="no zone")
    world.handle(ChangeSetAside(location=HERE, changes=(fact,)))

    (aside,) = databuild(tmp_path, tmp_path, "status", "--json").json["set_aside"]
    text = databuild(tmp_path, tmp_path, "status").out

    assert (aside["kind"], aside["name"], aside["location"], aside["reason"]) == ("ref", "bad", HERE, "no zone")
    assert aside["since"] is not None
    assert (aside["tries"], aside["again_at"]) == (None, None), "no tick of this process tried again"
    assert "set aside for now: 1; first bad: no zone\n" in text


def test_status_says_whether_an_orchestrator_ticks(project: Project) -> None:
    """Rule 11.4: one tick of a command is none."""
    created = project.call("want", "create", "revenue@2024-01-01")
    project.call("admin", "tick")
    (absent,) = project.ask("status")["orchestrators"]
    name = absent["location"]
    with project.own_process(), open_instance(project.home) as instance:
        note_tick(engine_for(instance), name, TickLimits(), interval_seconds=5.0)

    done = project.call("status")

    assert (absent["ticks"], absent["last_tick_at"]) == (False, None)
    assert absent["why_not"].startswith(f"no orchestrator of location {name!r} has ticked here")
    assert f"Warning: {absent['why_not']}." in created.err
    assert f"The orchestrator of {name} ticks, last at " in done.out
    assert "Warning" not in project.call("want", "list").err


def test_status_before_anything_is_registered_says_what_registers(project: Project) -> None:
    done = project.call("status")

    assert done.code == 0
    assert done.out.startswith(
        "No code location has registered an asset yet. `databuild build` registers what it loads."
    )


def test_status_of_many_assets_fits_one_screen_and_json_has_all(world: World, tmp_path: Path) -> None:
    others = [dataset(f"asset_{n:02}") for n in range(40 - len(world.specs))]
    world.handle(RegisterDatasets(location=HERE, datasets=(*world.specs, *others)))
    databuild(tmp_path, tmp_path, "want", "create", *(other.asset for other in others[:20]))
    world.live("bad", "good")

    done = databuild(tmp_path, tmp_path, "status")

    assert len(done.out.splitlines()) <= SCREEN_LINES
    assert (
        f"{40 - 2 - MAX_ASSETS} more assets: not everything is live. `databuild status --json` lists all." in done.out
    )
    assert "2 more assets: all partitions are live." in done.out
    assert f"{20 - MAX_WANTS} more open wants" in done.out
    assert len(databuild(tmp_path, tmp_path, "status", "--json").json["assets"]) == 40
