"""kill -9 between data, manifest, event, availability and the arc's want, each: in the end there is one complete manifest,
one want, and after a clean-up nothing else (rules 10.2, 10.5, 10.8).

Who is killed kills itself: a hook of the interpreter sees the very call that renames a file, links a manifest or removes
its temporary name, and a thread sees in the log what was recorded.
"""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from databuild_dagster.model.states import InstanceState
from tests.support.project import Project

from .sources import of_pandas

pytestmark = pytest.mark.timeout(600)
KILLED = pytest.mark.long("a process is killed between two of its writes")

DEFINITIONS = of_pandas('''
import os
import signal
import sqlite3
import sys
import threading

from databuild_dagster import databuild_boundary, databuild_multi_asset

POINT = (HERE / "die").read_text() if (HERE / "die").exists() else ""
daily = dg.DailyPartitionsDefinition("2024-01-01", end_date="2024-01-05")


def die():
    """Once: the next process finds no such file."""
    (HERE / "die").unlink()
    os.kill(os.getpid(), signal.SIGKILL)


#: Which call it is that would come next, and a part of its path.
CALLS = {
    "data": ("os.rename", "/orders/data/instance="),
    "manifest": ("os.link", "/orders/data/instance="),
    "event": ("os.remove", "/.manifest.json."),
    "second sink": ("os.link", "/low/data/instance="),
    "arrival's manifest": ("os.link", "/src/data/instance="),
    "arrival's event": ("os.remove", "/src/data/instance="),
}


def hook(event, arguments):
    call, part = CALLS[POINT]
    if event == call and any(part in str(argument) for argument in arguments):
        die()


def watch_the_log(kind):
    pause = threading.Event()
    while True:
        try:
            connection = sqlite3.connect(f"file:{os.environ['DAGSTER_HOME']}/databuild.db?mode=ro", uri=True)
            while not connection.execute("SELECT 1 FROM databuild_events WHERE type = ?", (kind,)).fetchone():
                pause.wait(0.001)
            die()
        except sqlite3.OperationalError:
            pause.wait(0.001)  # It is not there yet.


if POINT in ("JobRunSucceeded", "ArcFired", "LotArrived"):
    threading.Thread(target=watch_the_log, args=(POINT,), daemon=True).start()
elif POINT:
    sys.addaudithook(hook)


@databuild_asset(partitions_def=daily)
def orders(context: BuildContext) -> pd.DataFrame:
    return pd.DataFrame({"amount": [1.5]})


@databuild_asset(partitions_def=daily, subscribe="orders")
def doubled(orders: pd.DataFrame) -> pd.DataFrame:
    return orders * 2


@databuild_multi_asset(outs={"low": dg.AssetSpec("low"), "high": dg.AssetSpec("high")}, partitions_def=daily)
def sinks(orders: pd.DataFrame) -> dict[str, pd.DataFrame]:
    return {"low": orders, "high": orders}


src = databuild_boundary(
    "src", partitions_def=daily, files=f"{HERE}/landing/src_{{time:%Y%m%d}}*.parquet", settle_seconds=0
)


@databuild_asset(partitions_def=daily, subscribe="src")
def tripled(src: pd.DataFrame) -> pd.DataFrame:
    return src * 3


defs = build_definitions([orders, doubled, sinks, src, tripled])
''')
DAY = "2024-01-01"
ORDERS, DOUBLED, LOW, HIGH, SRC, TRIPLED = (
    f"{asset}@{DAY}" for asset in ("orders", "doubled", "low", "high", "src", "tripled")
)


@pytest.fixture
def project(project: Project) -> Project:
    project.define(DEFINITIONS)
    return project


def kill_at(project: Project, point: str, *arguments: str) -> None:
    (project.folder / "die").write_text(point)
    done = project.run(*arguments)
    assert done.code == -signal.SIGKILL, done
    assert not (project.folder / "die").exists()


def stored(project: Project) -> dict[str, list[str]]:
    """Everything that lies in the folders of instances, by dataset and uuid, and what is being written."""
    warehouse = project.home / "warehouse"
    found: dict[str, list[str]] = {}
    for folder in warehouse.glob("*/data/instance=*"):
        name = f"{folder.parent.parent.name} {folder.name.removeprefix('instance=')}"
        found[name] = sorted(path.name for path in folder.rglob("*"))
    for staged in (warehouse / ".staging").glob("*"):
        found[str(staged)] = ["staged"]
    return found


def manifest(project: Project, asset: str, uuid: str) -> dict[str, Any]:
    path = project.home / "warehouse" / asset / "data" / f"instance={uuid}" / "manifest.json"
    found: dict[str, Any] = json.loads(path.read_text())
    return found


def assert_only_what_is_live_is_left(project: Project, *refs: str) -> None:
    """One visible complete manifest for each, with exactly the files that it lists; of others at most the word `removed`."""
    live = {}
    for dataset in project.queries.datasets.all().values():
        for canonical in project.queries.instances.live(dataset.asset):
            answer = manifest(project, dataset.asset, canonical.uuid)
            assert answer["state"] == "complete"
            files = [file["uri"] for file in answer["files"] if answer["uri_type"] == "path"]
            live[f"{dataset.asset} {canonical.uuid}"] = sorted(["manifest.json", *files])
    assert set(refs) <= {
        ref for ref, state in project.queries.canonical.states(refs).items() if state is InstanceState.LIVE
    }
    found = stored(project)
    assert {name: found.get(name) for name in live} == live
    for name in found.keys() - live.keys():
        assert found[name] == ["manifest.json"], name
        assert manifest(project, *name.split(" "))["state"] == "removed"
    assert project.ask("log", "check", "--deep")["ok"]
    assert project.ask("gc", "--leftovers")["instances"] == project.ask("gc", "--leftovers")["leftovers"] == []


@KILLED
@pytest.mark.parametrize(
    "point",
    [
        pytest.param("data", marks=pytest.mark.extended),
        "manifest",
        pytest.param("event", marks=pytest.mark.extended),
        pytest.param("JobRunSucceeded", marks=pytest.mark.extended),
        pytest.param("ArcFired", marks=pytest.mark.extended),
    ],
)
def test_a_build_that_is_killed_anywhere_ends_with_one_manifest_and_one_want(project: Project, point: str) -> None:
    if point == "ArcFired":
        project.build(ORDERS)
        kill_at(project, point, "admin", "tick")
    else:
        kill_at(project, point, "build", ORDERS)

    project.build(ORDERS)
    project.tick_until_idle()
    project.build(DOUBLED)
    project.ask("gc", "--leftovers", "--yes")

    assert_only_what_is_live_is_left(project, ORDERS, DOUBLED)
    source = project.queries.canonical.of([ORDERS])[ORDERS].uuid
    wants = [want for want in project.queries.wants.of_ref(DOUBLED) if want.source == "arc"]
    assert [want.source_id for want in wants] == [source]
    assert project.ask("read", DOUBLED) == [{"amount": 3.0}]


@pytest.mark.long("a build waits for the retries of its launch")
def test_a_second_sink_that_cannot_be_written_leaves_nothing_of_the_first(project: Project) -> None:
    """Rule 6.2: both outputs of one job run, or none."""
    project.build(ORDERS)
    in_the_way = project.home / "warehouse" / "low"
    in_the_way.write_text("no folder can be made here")

    project.call("build", LOW, HIGH)

    assert InstanceState.LIVE not in project.queries.canonical.states([LOW, HIGH]).values()
    written = project.home / "warehouse" / "high" / "data"
    assert written.is_dir(), "the first one was written"
    assert list(written.iterdir()) == []
    assert project.call("read", HIGH).code == 2
    in_the_way.unlink()
    if InstanceState.FAILED in project.queries.canonical.states([LOW, HIGH]).values():
        project.ask("retry", LOW, HIGH)
    assert project.build(LOW, HIGH)["refs"] == {"live": 2, "failed": 0}
    project.ask("gc", "--leftovers", "--yes")
    assert_only_what_is_live_is_left(project, ORDERS, LOW, HIGH)


@KILLED
def test_killed_between_two_sinks_the_retry_writes_both_and_leaves_nothing_else(project: Project) -> None:
    project.build(ORDERS)
    kill_at(project, "second sink", "build", LOW, HIGH)
    (first,) = project.home.glob("warehouse/high/data/instance=*/manifest.json")
    assert json.loads(first.read_text())["state"] == "complete"
    assert project.call("read", HIGH).code == 2, "its event was never recorded, so no reader sees it"

    assert project.build(LOW, HIGH)["refs"] == {"live": 2, "failed": 0}
    project.ask("gc", "--leftovers", "--yes")

    assert not first.exists()
    assert_only_what_is_live_is_left(project, ORDERS, LOW, HIGH)


# Lots that arrive: there is no data of ours, so it is the manifest, the event, and the want of an arc


def land(project: Project, name: str, *amounts: float) -> Path:
    path = project.folder / "landing" / f"src_20240101{name}.parquet"
    path.parent.mkdir(exist_ok=True)
    pd.DataFrame({"amount": list(amounts)}).to_parquet(path)
    return path


@KILLED
@pytest.mark.parametrize(
    "point",
    [
        "arrival's manifest",
        pytest.param("arrival's event", marks=pytest.mark.extended),
        pytest.param("LotArrived", marks=pytest.mark.extended),
        pytest.param("ArcFired", marks=pytest.mark.extended),
    ],
)
def test_an_arrival_that_is_killed_anywhere_is_completed_by_the_next_look(project: Project, point: str) -> None:
    land(project, "", 1.0)
    if point == "ArcFired":
        project.ask("lot", "arrive", "--landed", "src")
        kill_at(project, point, "admin", "tick")
    else:
        kill_at(project, point, "lot", "arrive", "--landed", "src")
    folders = list(project.home.glob("warehouse/src/data/instance=*"))

    project.ask("lot", "arrive", "--landed", "src")
    project.tick_until_idle()
    project.build(TRIPLED)

    assert list(project.home.glob("warehouse/src/data/instance=*")) == folders, "the same lot, at the same place"
    project.ask("gc", "--leftovers", "--yes")
    assert_only_what_is_live_is_left(project, SRC, TRIPLED)
    source = project.queries.canonical.of([SRC])[SRC].uuid
    wants = [want for want in project.queries.wants.of_ref(TRIPLED) if want.source == "arc"]
    assert [want.source_id for want in wants] == [source]
    assert project.ask("read", TRIPLED) == [{"amount": 3.0}]


@KILLED
def test_files_of_a_killed_arrival_are_removed_once_its_lot_has_another_instance(project: Project) -> None:
    land(project, "", 1.0)
    kill_at(project, "arrival's event", "lot", "arrive", "--landed", "src")
    (left,) = project.home.glob("warehouse/src/data/instance=*")
    assert project.ask("gc", "--leftovers", "--yes")["leftovers"] == [], "the next look would go on with it"
    for path in left.iterdir():
        os.utime(path, (0, 0))
    project.ask("gc", "--leftovers", "--yes")
    (answer,) = project.ask("gc", "--leftovers")["leftovers"]
    assert (answer["orphan"], left.exists()) == (True, True), "and may do so a day later"

    land(project, "_more", 2.0)
    project.ask("lot", "arrive", "--landed", "src")
    answer = project.ask("gc", "--leftovers")["leftovers"]

    assert [(entry["path"], entry["orphan"]) for entry in answer] == [(str(left), False)]
    assert "has another instance since" in answer[0]["why"]
    project.ask("gc", "--leftovers", "--yes")
    assert not left.exists()
    assert_only_what_is_live_is_left(project, SRC)
    assert [row["amount"] for row in project.ask("read", SRC)] == [1.0, 2.0]
