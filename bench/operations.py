"""What operations over a whole dataset cost.

    python -m bench.operations [--jobs N] [--batch N …] [--url URL]

store: an operation of N trivial jobs, by one executor that takes and marks so many at a time, with its coordinator asked after
each time. Milliseconds for each job, of all that is done for it: starting, taking, marking and completing, statements,
transactions, decisions and the executor's own. The keys that the coordinator looked at for each job, in the first and in
the last tenth of the operation, say whether its work grows with the jobs already done.

Without a URL in a SQLite file. Prints Markdown, for docs/performance.md.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

from bench.engine.filling import MANIFEST, opened
from databuild_dagster.engine import Engine, new_id
from databuild_dagster.engine.completing import Coordinator
from databuild_dagster.engine.executing import Executor
from databuild_dagster.engine.operations import DistributedOperation, DistributedOperationManager
from databuild_dagster.model.commands import ArriveLots
from databuild_dagster.model.events import Arrival

#: Lots that arrive in one command.
BULK = 10_000


class Trivial(DistributedOperation[Any]):
    """Does nothing, so that only what surrounds it takes time."""

    type_name = "trivial"

    def start_or_resume_job(self, arg: Any, partition: Any, context: Any) -> None:
        return


class Measured(NamedTuple):
    """One operation."""

    batch: int
    start: float
    jobs: float
    complete: float
    keys_early: float
    keys_late: float
    idle: float


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.operations", description=__doc__)
    parser.add_argument("part", nargs="?", default="store", choices=["store"])
    parser.add_argument("--jobs", type=int, default=10_000)
    parser.add_argument("--batch", type=int, nargs="*", default=[100, 10, 1])
    parser.add_argument("--url")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        engine = opened(arguments.url or f"sqlite:///{Path(folder) / 'build.db'}")
        fill(engine, arguments.jobs)
        print(
            "| jobs at a time | start, ms | a job, ms | completion, ms | keys looked at per job: early | late | idle pass, ms |"
        )
        print("|---:|---:|---:|---:|---:|---:|---:|")
        for batch in arguments.batch:
            each = measure(engine, arguments.jobs, batch)
            print(
                f"| {each.batch} | {each.start * 1e3:.1f} | {each.jobs / arguments.jobs * 1e3:.3f} "
                f"| {each.complete * 1e3:.0f} | {each.keys_early:.1f} | {each.keys_late:.1f} | {each.idle * 1e3:.2f} |"
            )


def fill(engine: Engine, partitions: int) -> None:
    """So many live partitions of one dataset."""
    for first in range(0, partitions, BULK):
        keys = range(first, min(first + BULK, partitions))
        arrivals = tuple(Arrival(new_id(), f"a@{key:08}", "bench", MANIFEST) for key in keys)
        engine.handle(ArriveLots(arrivals=arrivals))


def measure(engine: Engine, n_jobs: int, batch: int) -> Measured:
    manager = DistributedOperationManager(engine, [Trivial()])
    executor, coordinator = Executor(manager), Coordinator(manager)
    coordinator.coordinate()
    began = time.perf_counter()
    id = manager.start("trivial", "a", None)
    started = time.perf_counter()
    looked: list[int] = [coordinator.tracker.n_applied]
    pass_seconds = 0.0
    while executor.step(id, batch):
        passed = time.perf_counter()
        coordinator.coordinate()
        pass_seconds = time.perf_counter() - passed
        looked.append(coordinator.tracker.n_applied)
    done = time.perf_counter()
    coordinator.coordinate()
    idle = time.perf_counter()
    for _ in range(100):
        coordinator.coordinate()
    idle = (time.perf_counter() - idle) / 100
    assert manager.running() == [], "it has ended"
    # The last pass completes the operation, and those before it look at leases and marks.
    steps = [after - before for before, after in pairwise(looked[1:-1])]
    tenth = max(len(steps) // 10, 1)
    return Measured(
        batch,
        started - began,
        done - started,
        pass_seconds,
        sum(steps[:tenth]) / tenth / batch,
        sum(steps[-tenth:]) / tenth / batch,
        idle,
    )


if __name__ == "__main__":
    main()
