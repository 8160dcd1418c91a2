"""`databuild gc`, with and without --leftovers: shown first, done when confirmed, and final (rule 10.8)."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from databuild_dagster.data.home import sqlite_url
from tests.support.homes import Home, a_home
from tests.support.project import Project

DAY, NEXT = "orders@2024-01-29", "orders@2024-01-30"
ANY_TIME = ("--older-than", "none")


@pytest.fixture
def home(project: Project) -> Iterator[Home]:
    """Files and events in the home of the project, as builds of an earlier year have left them."""
    made = a_home(project.home, sqlite_url(project.home))
    yield made
    made.assert_sound()
    made.world.close()


def folder(project: Project, uuid: str, asset: str) -> Path:
    return project.home / "warehouse" / asset / "data" / f"instance={uuid}"


def log(project: Project, after: int) -> list[dict[str, Any]]:
    return [json.loads(line) for line in project.call("log", "events", "--after", str(after)).out.splitlines()]


def error_of(project: Project, *arguments: str) -> str:
    """The type of the error with which a command is refused."""
    refused = project.call(*arguments, "--json")
    assert refused.code == 2
    error: str = refused.json["error"]["type"]
    return error


def test_files_of_a_failed_attempt_are_listed_and_removed_with_yes(project: Project, home: Home) -> None:
    uuid = home.failed("a")
    home.live("b")
    events = project.n_events()

    dry = project.ask("gc", "--leftovers")

    (answer,) = dry["instances"]
    assert (answer["ref"], answer["uuid"], answer["why"], answer["files"]) == ("a", uuid, "left by an attempt", 1)
    assert dry["bytes"] == answer["bytes"] > 0
    assert not dry["done"]
    assert project.ask("gc", "--leftovers", "a")["instances"] == dry["instances"]
    assert project.ask("gc", "--leftovers", "b")["instances"] == []
    assert project.n_events() == events
    assert len(home.files("a", uuid)) == 2
    shown = project.call("gc", "--leftovers")
    assert "1 instance" in shown.out
    assert "Nothing was done; --yes does it." in shown.out

    done = project.ask("gc", "--leftovers", "--yes")

    assert (done["done"], [instance["uuid"] for instance in done["instances"]]) == (True, [uuid])
    assert home.files("a", uuid) == ["manifest.json"]
    assert [event["type"] for event in log(project, events)] == ["ManifestRemoved", "RemovalFinished"]
    assert project.ask("gc", "--leftovers")["instances"] == []
    assert project.call("gc", "--leftovers").out == "There is nothing to remove.\n"


def test_superseded_instances_are_removed_but_for_the_newest_and_the_youngest(project: Project) -> None:
    project.build(DAY)
    project.build(DAY, "--rebuild")
    first, second = (instance.uuid for instance in project.queries.instances.history(DAY))
    seq = project.n_events()

    assert project.ask("gc", *ANY_TIME)["instances"] == [], "the newest one that was replaced stays"
    assert project.ask("gc", "--keep", "0")["instances"] == [], "readers saw it not long ago"
    everything = project.ask("gc", *ANY_TIME, "--keep", "0")
    assert [(instance["uuid"], instance["why"]) for instance in everything["instances"]] == [(first, "superseded")]
    assert project.ask("gc", f"{DAY}..2024-01-31", *ANY_TIME, "--keep", "0") == everything
    assert project.ask("gc", f"{NEXT}..2024-01-31", *ANY_TIME, "--keep", "0")["instances"] == []
    assert project.n_events() == seq

    project.ask("gc", *ANY_TIME, "--keep", "0", "--yes")

    assert [len(list(folder(project, uuid, "orders").iterdir())) for uuid in (first, second)] == [1, 2]
    assert project.ask("read", DAY) == [{"day": "2024-01-29", "amount": a} for a in (1.5, 2.5)]
    assert project.ask("log", "check", "--deep")["ok"]
    assert "data removed" in project.call("history", DAY, "--wide").out


def test_removed_data_is_neither_reverted_to_nor_read_as_of_then(project: Project, home: Home) -> None:
    """Rules 7.4, 3.2"""
    first = home.live("a")
    then = str(project.n_events())
    home.live_again("a")
    project.ask("gc", "--keep", "0", "--yes")
    events = project.n_events()

    assert error_of(project, "revert", "a", "--to", first) == "DataTakenAway"
    assert error_of(project, "read", "a", "--as-of", then) == "DataTakenAway"

    assert project.n_events() == events
    assert project.ask("show", "a", "--as-of", then)["canonical"]["files"] == []
    assert {instance["uuid"] for instance in project.ask("show", "--full", "a", "--instance", first)["instances"]} == {
        first
    }


def test_live_data_is_removed_if_tainted_and_asked_for_and_is_built_again(project: Project, home: Home) -> None:
    """Rule 10.8"""
    uuid = home.live("a")
    assert project.ask("gc", "--keep", "0", "--tainted")["instances"] == []
    taint_id = project.ask("taint", "a", "--reason", "names in it")["taint_id"]
    assert project.ask("gc", *ANY_TIME, "--keep", "0")["instances"] == []

    done = project.ask("gc", *ANY_TIME, "--keep", "0", "--tainted", "--yes")

    assert [(instance["uuid"], instance["why"]) for instance in done["instances"]] == [(uuid, "tainted")]
    assert home.files("a", uuid) == ["manifest.json"]
    assert error_of(project, "untaint", taint_id) == "NothingToUntaint"
    assert error_of(project, "read", "a", "--allow-tainted") == "DataTakenAway"
    home.live("a")


def test_an_instance_that_cannot_be_removed_is_named_and_removed_by_the_next(project: Project, home: Home) -> None:
    first = home.live("a")
    home.live_again("a")
    record = folder(project, first, "a") / "manifest.json"
    record.rename(aside := project.folder / "aside.json")
    record.mkdir()  # No program reads a folder as if it were a file.

    done = project.call("gc", "--keep", "0", "--yes", "--json")

    assert (done.code, done.json["failed"][0]["what"], done.json["instances"]) == (1, "a", [])
    again = project.call("gc", "--yes")
    assert (again.code, again.err) == (
        1,
        f"Not removed: a, for {done.json['failed'][0]['why']} The next clean-up tries again.\n",
    )
    assert project.ask("gc")["unfinished"] == [first]
    record.rmdir()
    aside.rename(record)
    assert project.ask("gc", "--leftovers", "--yes")["unfinished"] == [first]
    assert home.files("a", first) == ["manifest.json"]
    assert project.ask("gc")["unfinished"] == []


def test_a_file_that_a_dead_process_left_beside_live_data_is_removed(project: Project, home: Home) -> None:
    uuid = home.live("a")
    half = folder(project, uuid, "a") / ".manifest.json.0123456789abcdef"
    half.write_text("{")

    done = project.ask("gc", "--leftovers", "--yes")

    assert [leftover["path"] for leftover in done["leftovers"]] == [str(half)]
    assert home.files("a", uuid) == ["manifest.json", "part-0.parquet"]


def test_files_of_no_known_instance_are_removed_only_with_orphans(project: Project, home: Home) -> None:
    """Another Dagster instance may write to the same warehouse, and know it."""
    home.live("a")
    strange = folder(project, "5e0002a1-0f3d-bd95-db63-b1ac4bedec0f", "a")
    strange.mkdir()
    (strange / "part-0.parquet").write_bytes(b"whose?")
    assert project.ask("gc", "--leftovers", "--orphans")["leftovers"] == [], "another process may be about to record it"
    os.utime(strange / "part-0.parquet", (0, 0))

    planned = project.ask("gc", "--leftovers")
    (answer,) = planned["leftovers"]
    assert (answer["path"], answer["orphan"]) == (str(strange), True)
    assert (planned["files"], planned["bytes"]) == (0, 0), "it stays"
    assert project.ask("gc", "--leftovers", "--yes")["leftovers"] == []
    assert strange.exists()
    assert "--orphans takes them along" in project.call("gc", "--leftovers").out

    project.ask("gc", "--leftovers", "--yes", "--orphans")

    assert not strange.exists()


@pytest.mark.parametrize(
    ("arguments", "kind"),
    [
        (("gc", "--leftovers", "unknown"), "UnknownAsset"),
        (("gc", "unknown"), "UnknownAsset"),
        (("gc", "orders@2024-1-29"), "UnknownPartition"),
        (("gc", "orders@2024-01-31..2024-01-29"), "InvalidSelection"),
        (("gc", "--keep", "-1"), "BadParameter"),
        (("gc", "--older-than", "soon"), "BadParameter"),
    ],
)
def test_arguments_that_mean_nothing_are_refused(known_project: Project, arguments: tuple[str, ...], kind: str) -> None:
    refused = known_project.call(*arguments, "--json")

    assert (refused.code, refused.json["error"]["type"]) == (2, kind)


ARC = """
from pathlib import Path

import dagster as dg
import pandas as pd

from databuild_dagster import BuildContext, build_definitions, databuild_asset

HERE = Path(__file__).parent
daily = dg.DailyPartitionsDefinition("2024-01-01", end_date="2024-01-03")


@databuild_asset(partitions_def=daily)
def orders(context: BuildContext) -> pd.DataFrame:
    return pd.DataFrame({"amount": [1.5]})


def no_doubts(rows: pd.DataFrame) -> bool:
    return not (HERE / "doubts").exists()


@databuild_asset(partitions_def=daily, subscribe="orders", blocking_checks=[no_doubts])
def checked(orders: pd.DataFrame) -> pd.DataFrame:
    return orders


defs = build_definitions([orders, checked])
"""


def test_a_partial_lot_of_an_arc_is_missing_once_it_was_cleaned(project: Project) -> None:
    """Rule 10.8, findings/seeds.md 24: without a tick after it."""
    lot = "checked@2024-01-01"
    project.define(ARC)
    (project.folder / "doubts").touch()
    assert project.call("build", lot).code == 1
    uuid = project.queries.instances.history(lot)[-1].uuid
    assert arc_states(project)[lot] == "partial"

    done = project.ask("gc", "--leftovers", "checked", "--yes")

    assert [instance["uuid"] for instance in done["instances"]] == [uuid]
    assert arc_states(project)[lot] == "missing"
    copies = project.home.glob("warehouse/datasets/name=checked/*/lot=*/*")
    assert [copy.name for copy in copies] == ["state=removed"], "other tools list no file that is gone"
    answer = json.loads((folder(project, uuid, "checked") / "manifest.json").read_text())
    assert (answer["state"], "no_doubts" in answer["comment"]) == ("removed", True), "why it failed can still be asked"
    (project.folder / "doubts").unlink()
    project.ask("retry", lot)
    assert project.build(lot)["refs"] == {"live": 1, "failed": 0}
    assert arc_states(project)[lot] == "complete"
    assert project.ask("log", "check", "--deep")["ok"]


def arc_states(project: Project) -> dict[str, str]:
    return {entry["ref"]: entry["state"] for entry in project.ask("lot", "list", "--subscriptions", "checked")}


FILLING = """
from pathlib import Path

import pandas as pd

from databuild_dagster import build_definitions, databuild_asset

FILLER = Path(__file__).parent / "filler"


@databuild_asset
def small() -> pd.DataFrame:
    return pd.DataFrame({"n": [1]})


@databuild_asset
def filling() -> pd.DataFrame:
    with FILLER.open("wb", buffering=0) as file:
        while file.write(b"0" * 4096):
            pass


defs = build_definitions([small, filling])
"""


@pytest.fixture
def project_on_a_disk_of_its_own(tmp_path: Path, empty_home: Path) -> Iterator[Project]:
    """40 MiB, so that it can be filled."""
    place = tmp_path / "disk"
    place.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=40m", "tmpfs", str(place)], check=False).returncode:
        pytest.skip("only root may mount a file system here")
    made = Project(place, empty_home)
    made.define(FILLING)
    yield made
    made.end()
    subprocess.run(["umount", "--lazy", str(place)], check=True)


@pytest.mark.long("two builds fill a disk that is mounted for them")
def test_clean_up_works_on_the_disk_that_a_build_has_filled(project_on_a_disk_of_its_own: Project) -> None:
    project = project_on_a_disk_of_its_own
    project.build("small")
    project.build("small", "--rebuild")
    old = project.queries.instances.history("small")[0].uuid
    filler = project.folder / "filler"

    build = project.call("build", "filling")
    # With no byte free, Dagster's own files may end a build before its free space is compared.
    os.truncate(filler, filler.stat().st_size - 6 * 2**20)
    another = project.call("build", "filling")
    with filler.open("ab", buffering=0) as file, suppress(OSError):
        while file.write(b"0" * 4096):
            pass
    free_bytes = shutil.disk_usage(project.folder).free
    leftovers = project.call("gc", "--leftovers", "--yes")
    replaced = project.call("gc", "--keep", "0", *ANY_TIME, "--yes")
    filler.unlink()

    assert build.code == 1, build
    assert "Interrupted" not in build.err
    assert another.code == 2, another
    assert "MiB free, and a build begins with 16 MiB at least" in another.err
    assert free_bytes == 0
    assert leftovers.code == replaced.code == 0, replaced
    # Its manifest may stay, and says that the data was removed.
    assert list(folder(project, old, "small").glob("*.parquet")) == []
    assert project.call("build", "small", "--rebuild").code == 0
    assert project.is_sound()
