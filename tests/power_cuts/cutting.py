"""Records the scenario, makes disks of it, and judges each."""

from __future__ import annotations

import json
import os
import random
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from databuild_dagster.data.contents import Comparison, Journal
from databuild_dagster.data.ownership import warehouses_of
from databuild_dagster.features.clean.orphan_files import unlisted_storage
from databuild_dagster.store.queries.queries import Queries
from databuild_dagster.store.store import open_store
from tests.support.checking import check

from .calls import Change, changes, traced
from .disks import Machine
from .scenario import ACKNOWLEDGED, MOST_DAYS

ROOT = Path(__file__).parent.parent.parent
OF_DAGSTER = ("home/storage", "home/history", "home/schedules", "home/logs", "home/.telemetry", "home/.logs_queue")
#: A power cut leaves such files without meaning: processes map them into memory.
_MAPPED = "-shm"


class Result(NamedTuple):
    """What was found on the disks."""

    n_commands: int
    n_changes: int
    #: Disks that lack the end of the log that a command was acknowledged with.
    n_lost: int
    faults: list[str]


def cut_power(recorded: Sequence[Change], n_disks: int, seed: int, *, is_durable: bool) -> Result:
    """Cut the power at random moments of what was recorded. If commits are durable, a lost command is a fault."""
    with tempfile.TemporaryDirectory(prefix="databuild-power-") as scratch:
        rng = random.Random(seed)
        moments = sorted(rng.randrange(1, len(recorded) + 1) for _ in range(n_disks))
        machine, made, seq, n_lost, faults = Machine(), 0, 0, 0, list[str]()
        for number, moment in enumerate(moments):
            while made < moment:
                change = recorded[made]
                made += 1
                if change.path == ACKNOWLEDGED:
                    seq = json.loads(change.data)["seq"] if change.data else seq
                else:
                    machine.make(change)
            disk = Path(scratch) / "disk"
            machine.cut(random.Random(f"{seed} {number}"), disk)
            lost, found = judged(disk, seq)
            n_lost += lost
            if lost and is_durable:
                found.append(f"it lacks the event {seq} that a command was acknowledged with")
            faults += [f"disk {number}, after change {made} ({recorded[made - 1][:3]}): {fault}" for fault in found]
            shutil.rmtree(disk)
    n_commands = sum(change.path == ACKNOWLEDGED and bool(change.data) for change in recorded)
    return Result(n_commands, len(recorded), n_lost, faults)


def recorded(scratch: Path, *, is_durable: bool, days: int = MOST_DAYS) -> Iterator[Change]:
    """The changes of files that the scenario makes, with ten commands for each day."""
    folder, trace = scratch / "project", scratch / "trace"
    new_project(folder)
    environment = os.environ | {
        "DAGSTER_HOME": str(folder / "home"),
        "PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")]),
        "DATABUILD_SQLITE_SYNCHRONOUS": "FULL" if is_durable else "NORMAL",
    }
    done = traced([sys.executable, "-m", "tests.power_cuts.scenario", str(days)], trace, cwd=folder, env=environment)
    if done.returncode:
        raise RuntimeError(f"the scenario ended by {done.returncode}: {done.stderr[-2000:]}")
    yield Change("mkdir", "home")
    yield Change("sync", "")
    for change in changes(trace, folder):
        if not change.path.startswith(OF_DAGSTER) and not change.path.endswith(_MAPPED):
            yield change


def new_project(folder: Path) -> None:
    """Make the folder that the scenario runs in."""
    (folder / "home").mkdir(parents=True)
    (folder / "home" / "dagster.yaml").write_text("telemetry: {enabled: false}\n")
    (folder / "workspace.yaml").write_text("load_from:\n  - python_module: tests.power_cuts.scenario\n")


def judged(disk: Path, seq: int) -> tuple[bool, list[str]]:
    """Whether a store with this end of its log lost some of it, and the other faults of a disk."""
    home = disk / "home"
    if not (home / "databuild.db").exists():
        return seq > 0, []
    try:
        store = open_store(f"sqlite:///{home}/databuild.db")
        try:
            queries = Queries(store)
            found = [f"{violation}" for violation in check(store, deep=True)]
            found += [fault.sentence for fault in Comparison(queries, Journal(str(home / "journal"))).faults()]
            for warehouse in warehouses_of(queries, str(home / "warehouse")):
                found += [f"{one}" for one in unlisted_storage(queries, warehouse, time.time())]
            is_lost = queries.events.head().seq < seq
            with store.writing() as work:
                work.refs(["raw@day0"])
        finally:
            store.close()
    except Exception as error:
        return False, [f"{type(error).__name__}: {error}"]
    return is_lost, found
