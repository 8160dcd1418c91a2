"""Each snapshot of a published table has the rows that `table(…, as_of=seq)` reads, after any history (rule 10.10)."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from databuild_dagster.model.datasets import TableSpec
from databuild_dagster.model.errors import Refused
from databuild_dagster.model.states import InstanceState
from tests.support.published import DAYS, DELTA, ICEBERG, PublishedWorld
from tests.support.table_readers import keeps_rows, newest_snapshot, rows_as_of, rows_by_reader, snapshots

KEYS = DAYS[:3]
#: With DATABUILD_LONG=1 each format takes about a quarter of an hour.
EXAMPLES = 1_000 if os.environ.get("DATABUILD_LONG") else 15
#: Names of what happens, with the place of a partition key; builds are most of it.
STEPS = st.tuples(
    st.sampled_from(
        [
            "build",
            "build",
            "again",
            "again",
            "compact",
            "add a column",
            "two files",
            "empty",
            "taint",
            "untaint",
            "revert",
            "adopt",
        ]
    ),
    st.integers(0, len(KEYS) - 1),
)
HISTORIES = st.lists(st.one_of(STEPS, st.sampled_from([("publish", 0), ("publish", 0), ("gc", 0)])), max_size=14)


class Story:
    """A random history of one dataset."""

    def __init__(self, world: PublishedWorld) -> None:
        self.world = world
        self.n_rows = 0
        self.taints: dict[str, str] = {}
        self.built: dict[str, list[str]] = {key: [] for key in KEYS}
        #: The rows of the last build that counted them.
        self.last = {key: {"x": [-1], "name": [key]} for key in KEYS}
        #: Snapshots that `gc` has left.
        self.last_gc = 0

    def row(self, **more: Any) -> dict[str, list[Any]]:
        self.n_rows += 1
        return {"x": [self.n_rows, None], "name": [f"row {self.n_rows}", "ä"], **more}

    def again(self, key: str, rows: dict[str, list[Any]]) -> str:
        self.last[key] = rows
        return self.world.build(key, rows, content_hash=f"arrow-1:{rows['x'][0]}")

    def do(self, step: str, key: str) -> None:
        builds: dict[str, Callable[[], str]] = {
            "build": lambda: self.again(key, self.row()),
            "again": lambda: self.again(key, self.last[key]),
            "add a column": lambda: self.world.build(key, self.row(more=[1.5, None])),
            "two files": lambda: self.world.build(key, self.row(), self.row()),
            "empty": lambda: self.world.build(key),
        }
        ref = self.world.ref(key)
        match step:
            case "publish":
                self.world.publish()
            case "gc":
                removed = set(self.world.gc())
                self.built = {key: [uuid for uuid in uuids if uuid not in removed] for key, uuids in self.built.items()}
                self.last_gc = self.world.seq
            case "taint":
                if self.world.state(ref) is InstanceState.LIVE:
                    self.taints[ref] = self.world.taint(ref)
            case "untaint":
                # Refused for a taint of an instance that was replaced since.
                with suppress(Refused, KeyError):
                    self.world.untaint(self.taints.pop(ref))
            case "revert":
                with suppress(Refused, IndexError):
                    self.world.revert(key, self.built[key][0])
            case "compact":
                if self.world.state(ref) is InstanceState.LIVE:
                    rows = self.world.rows_of(key)
                    self.built[key].append(self.world.compact(key, *([rows] if len(rows) else [])))
            case "adopt":
                folder = Path(self.world.warehouse.dataset_dir("sales"), "given")
                self.built[key].append(self.world.adopt(key, folder / f"{self.n_rows}.parquet", self.row()))
            case _:
                if self.world.state(ref) is InstanceState.LIVE:
                    self.taints[ref] = self.world.taint(ref)
                self.built[key].append(builds[step]())


@pytest.mark.parametrize("table", [ICEBERG, DELTA], ids=["iceberg", "delta"])
@settings(max_examples=EXAMPLES, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(history=HISTORIES)
def test_each_snapshot_has_the_rows_as_of_its_seq(table: TableSpec, history: list[tuple[str, int]]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        world = PublishedWorld(Path(folder), table, KEYS)
        story = Story(world)
        try:
            # A table without any file would have no columns, and is not created.
            for step, place in [("build", 0), ("publish", 0), *history]:
                story.do(step, KEYS[place])
            published = world.publish()

            found = snapshots(world)

            assert max(found.values()) <= published.seq == world.seq
            newest = newest_snapshot(world)
            readable = [snapshot for snapshot, seq in found.items() if seq >= story.last_gc or snapshot == newest]
            before = None
            for snapshot in sorted(readable, key=lambda one: found[one]):
                seq = world.seq if snapshot == newest else found[snapshot]
                now = rows_as_of(world, seq)
                for reader, rows in rows_by_reader(world, snapshot).items():
                    assert rows == now, reader
                assert before is None or now == before or not keeps_rows(world, snapshot)
                before = now
            assert world.publish().snapshot is None
        finally:
            world.close()
