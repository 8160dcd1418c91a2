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

from tests.support.project import Project

pytestmark = pytest.mark.long

DAY, NEXT = "orders@2024-01-29", "orders@2024-01-30"
ANY_TIME = ("--older-than", "none")


def folder(project: Project, uuid: str, asset: str = "orders") -> Path:
    return project.home / "warehouse" / asset / "data" / f"instance={uuid}"


def uuids(project: Project, ref: str = DAY) -> list[str]:
    return [instance.uuid for instance in project.queries.history(ref)]


def manifest(project: Project, uuid: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((folder(project, uuid) / "manifest.json").read_text())
    return found


def build_again(project: Project, ref: str, times: int = 1) -> list[str]:
    project.build(ref)
    for _ in range(times):
        project.build(ref, "--rebuild")
    return uuids(project, ref)


def left_by_a_failed_attempt(project: Project, ref: str = DAY) -> str:
    """As a check that does not pass leaves it: stored, with a manifest that is partial, and never live."""
    project.build(NEXT)
    source = folder(project, uuids(project, NEXT)[0])
    project.fail(ref.partition("@")[2])
    assert project.call("build", ref).code == 1
    uuid = uuids(project, ref)[-1]
    shutil.copytree(source, folder(project, uuid))
    path = folder(project, uuid) / "manifest.json"
    answer = json.loads(path.read_text())
    path.write_text(json.dumps({**answer, "ref": ref, "instance_uuid": uuid, "state": "partial"}))
    return uuid


def test_files_of_a_failed_attempt_are_listed_and_removed_with_yes(project: Project) -> None:
    uuid = left_by_a_failed_attempt(project)
    events = project.n_events()

    dry = project.ask("gc", "--leftovers")

    (answer,) = dry["instances"]
    assert (answer["ref"], answer["uuid"], answer["why"], answer["files"]) == (DAY, uuid, "left by an attempt", 1)
    assert dry["bytes"] == answer["bytes"] > 0
    assert not dry["done"]
    assert project.ask("gc", "--leftovers", f"{DAY}..2024-01-30")["instances"] == dry["instances"]
    assert project.ask("gc", "--leftovers", f"{NEXT}..2024-01-31")["instances"] == []
    assert project.n_events() == events
    assert len(list(folder(project, uuid).iterdir())) == 2
    shown = project.call("gc", "--leftovers")
    assert "1 instance" in shown.out
    assert "Nothing was done; --yes does it." in shown.out

    done = project.ask("gc", "--leftovers", "--yes")

    assert (done["done"], [instance["uuid"] for instance in done["instances"]]) == (True, [uuid])
    assert [path.name for path in folder(project, uuid).iterdir()] == ["manifest.json"]
    assert manifest(project, uuid)["state"] == "removed"
    assert [path.parent.name for path in (project.home / "warehouse" / "datasets").rglob(f"attempt={uuid}/*")] == [
        f"attempt={uuid}"
    ], "the copy for other tools says so too"
    assert [event["type"] for event in log(project, events)] == ["ManifestRemoved", "RemovalFinished"]
    assert project.ask("gc", "--leftovers")["instances"] == []
    assert project.call("gc", "--leftovers").out == "There is nothing to remove.\n"
    assert project.is_sound()
    assert project.ask("log", "check", "--deep")["ok"]


def log(project: Project, after: int) -> list[dict[str, Any]]:
    return [json.loads(line) for line in project.call("log", "events", "--after", str(after)).out.splitlines()]


def test_superseded_instances_are_removed_but_for_the_newest_and_the_youngest(project: Project) -> None:
    first, second, third = build_again(project, DAY, times=2)
    seq = project.n_events()

    assert project.ask("gc")["instances"] == [], "readers saw both not long ago"
    assert [instance["uuid"] for instance in project.ask("gc", *ANY_TIME)["instances"]] == [first]
    assert project.ask("gc", *ANY_TIME, "--keep", "2")["instances"] == []
    both = project.ask("gc", *ANY_TIME, "--keep", "0")
    assert {instance["uuid"] for instance in both["instances"]} == {first, second}
    assert {instance["why"] for instance in both["instances"]} == {"superseded"}
    assert project.ask("gc", f"{DAY}..2024-01-31", *ANY_TIME, "--keep", "0") == both
    assert project.ask("gc", "orders@2024-01-30..2024-01-31", *ANY_TIME, "--keep", "0")["instances"] == []
    assert project.n_events() == seq

    project.ask("gc", *ANY_TIME, "--yes")

    assert [len(list(folder(project, uuid).iterdir())) for uuid in (first, second, third)] == [1, 2, 2]
    assert project.ask("read", DAY) == [{"day": "2024-01-29", "amount": a} for a in (1.5, 2.5)]
    assert project.ask("log", "check", "--deep")["ok"]
    assert "data removed" in project.call("history", DAY, "--wide").out


def test_removed_data_is_neither_reverted_to_nor_read_as_of_then(project: Project) -> None:
    """Rules 7.4, 3.2: each in one sentence."""
    project.build(DAY)
    then = str(project.n_events())
    first, _ = build_again(project, DAY)
    assert project.call("read", DAY, "--as-of", then).code == 0
    project.ask("gc", *ANY_TIME, "--keep", "0", "--yes")
    events = project.n_events()

    for arguments in (("revert", DAY, "--to", first), ("read", DAY, "--as-of", then)):
        refused = project.call(*arguments, "--json")
        assert refused.code == 2
        assert refused.json["error"]["type"] == "DataTakenAway"
        assert (
            f"{DAY} was built as instance {first}, and its data was removed since" in refused.json["error"]["message"]
        )

    assert project.n_events() == events
    assert project.ask("show", DAY, "--as-of", then)["canonical"]["files"] == []
    assert {instance["uuid"] for instance in project.ask("receipt", DAY, "--instance", first)["instances"]} == {first}


def test_live_data_is_removed_if_tainted_and_asked_for_and_is_built_again(project: Project) -> None:
    """Rule 10.8"""
    (uuid,) = build_again(project, DAY, times=0)
    everything = (*ANY_TIME, "--keep", "0", "--tainted")
    assert project.ask("gc", *everything)["instances"] == []
    taint_id = project.ask("taint", DAY, "--reason", "names in it")["taint_id"]
    assert project.ask("gc", *ANY_TIME, "--keep", "0")["instances"] == []

    done = project.ask("gc", *everything, "--yes")

    assert [(instance["uuid"], instance["why"]) for instance in done["instances"]] == [(uuid, "tainted")]
    assert not list(folder(project, uuid).glob("*.parquet"))
    assert project.call("untaint", taint_id, "--json").json["error"]["type"] == "NothingToUntaint"
    assert project.call("read", DAY, "--allow-tainted", "--json").json["error"]["type"] == "DataTakenAway"
    project.build(DAY)
    assert project.ask("read", DAY)
    assert project.is_sound()


def test_an_instance_that_cannot_be_removed_is_named_and_removed_by_the_next(project: Project) -> None:
    first, _ = build_again(project, DAY)
    record = folder(project, first) / "manifest.json"
    record.rename(aside := project.folder / "aside.json")
    record.mkdir()  # No program reads a folder as if it were a file.

    done = project.call("gc", *ANY_TIME, "--keep", "0", "--yes", "--json")

    assert (done.code, done.json["failed"][0]["what"], done.json["instances"]) == (1, DAY, [])
    again = project.call("gc", "--yes")
    assert (again.code, again.err) == (
        1,
        f"Not removed: {DAY}, for {done.json['failed'][0]['why']} The next clean-up tries again.\n",
    )
    assert project.ask("gc")["unfinished"] == [first]
    record.rmdir()
    aside.rename(record)
    assert project.ask("gc", "--leftovers", "--yes")["unfinished"] == [first]
    assert not list(folder(project, first).glob("*.parquet"))
    assert project.ask("gc")["unfinished"] == []


def test_a_file_that_a_dead_process_left_beside_live_data_is_removed(project: Project) -> None:
    (uuid,) = build_again(project, DAY, times=0)
    half = folder(project, uuid) / ".manifest.json.0123456789abcdef"
    half.write_text("{")

    done = project.ask("gc", "--leftovers", "--yes")

    assert [leftover["path"] for leftover in done["leftovers"]] == [str(half)]
    assert not half.exists()
    assert project.ask("read", DAY)


def test_files_of_no_known_instance_are_removed_only_with_orphans(project: Project) -> None:
    """Another Dagster instance may write to the same warehouse, and know it."""
    build_again(project, DAY, times=0)
    strange = folder(project, "5e0002a1-0f3d-bd95-db63-b1ac4bedec0f")
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
    assert project.ask("read", DAY)


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
    uuid = uuids(project, lot)[-1]
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
    return {entry["ref"]: entry["state"] for entry in project.ask("arc", "list", "checked")}


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


def test_clean_up_works_on_the_disk_that_a_build_has_filled(project_on_a_disk_of_its_own: Project) -> None:
    project = project_on_a_disk_of_its_own
    old, _ = build_again(project, "small")
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
