"""Engines that the suite does not have read every snapshot of published tables, and find the rows as of its seq.

    make test-engines
    make test-engines-long

This process makes the tables and writes down the rows that `table(…, as_of=seq)` reads; `readers` compares them in the environment
of the engines.
"""

from __future__ import annotations

import json
import random
import subprocess
import sys
import tempfile
from pathlib import Path

from databuild_dagster.model.datasets import TableFormat
from databuild_dagster.model.states import InstanceState
from tests.support.published import DAYS, DELTA, ICEBERG, PublishedWorld
from tests.support.table_readers import iceberg_table, rows_as_of, snapshots

SEED = 20
N_STEPS = 24
MAX_SECONDS = 600


def history(world: PublishedWorld) -> None:
    """Builds, taints, new columns and empty partitions, published now and then."""
    chance = random.Random(SEED)
    for step in range(N_STEPS):
        key = chance.choice(DAYS)
        if world.state(world.ref(key)) is InstanceState.LIVE:
            world.taint(world.ref(key))
        match chance.randrange(5):
            case 0:
                world.build(key)
            case 1:
                world.build(key, {"x": [step], "name": ["ä"], "more": [step / 2]})
            case 2:
                world.build(key, {"x": [step, None], "name": [None, "b"]}, {"x": [None, step], "name": ["b", None]})
            case _:
                world.build(key, {"x": [step, step + 100], "name": ["a", "b"]})
        if chance.randrange(2):
            world.publish()
    world.publish()


def expected(world: PublishedWorld) -> list[dict[str, object]]:
    """Each snapshot with its rows, and the file from which an engine reads it."""
    found = snapshots(world)
    files: dict[int, str] = {}
    if world.spec.table.format is TableFormat.ICEBERG:
        table = iceberg_table(world)
        logged = [entry.metadata_file for entry in table.metadata.metadata_log] + [table.metadata_location]
        for path in logged:
            current = json.loads(Path(path.removeprefix("file://")).read_text()).get("current-snapshot-id")
            if current in found:
                files[current] = path
    else:
        files = dict.fromkeys(found, world.warehouse.dataset_dir(world.asset))
    return [
        {
            "format": world.spec.table.format.value,
            "snapshot": snapshot,
            "is_newest": seq == max(found.values()),
            "path": files[snapshot],
            "rows": rows_as_of(world, seq),
        }
        for snapshot, seq in found.items()
    ]


def main(python: str, reader: str = "readers.py") -> int:
    with tempfile.TemporaryDirectory() as folder:
        cases = []
        for table in (ICEBERG, DELTA):
            world = PublishedWorld(Path(folder, table.format.value), table)
            history(world)
            cases += expected(world)
            world.close()
        asked = Path(folder, "cases.json")
        asked.write_text(json.dumps(cases))
        readers = Path(__file__).with_name(reader)
        return subprocess.run([python, readers, asked], timeout=MAX_SECONDS, check=False).returncode


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
