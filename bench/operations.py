"""What operations over a whole dataset cost.

    python -m bench.operations [store|parallel|validate|index|adopt …] [--jobs N] [--batch N …] [--url URL] [--rounds N] [--clock cpu]

store: an operation of N trivial jobs, by one executor that takes and marks so many at a time, with its coordinator asked after
each time. Milliseconds for each job, of all that is done for it: starting, taking, marking and completing, statements,
transactions, decisions and the executor's own. The keys that the coordinator looked at for each job, in the first and in
the last tenth of the operation, say whether its work grows with the jobs already done.

parallel: an operation of 40 jobs, which wait or compute for 50 ms each, by one executor with 1, 2 and 4 threads. Seconds.

validate, index: the operations that come with databuild, over a year of flights (`bench.provided`).

adopt: a process that has taken jobs is killed with -9, and another one looks every second: how long until that has them all, where it can
see that the process is gone, and where, as on another machine, only silence tells.

Without a URL in a SQLite file. Prints Markdown, for docs/performance.md.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import time
from hashlib import pbkdf2_hmac
from itertools import pairwise
from pathlib import Path
from statistics import median
from threading import Event
from typing import Any, NamedTuple, NoReturn

from bench.engine import clock
from bench.engine.filling import MANIFEST, opened
from databuild_dagster.engine.engine import Engine
from databuild_dagster.engine.holders import new_id
from databuild_dagster.engine.judge import LEASE_SECONDS, Judge
from databuild_dagster.features.operations.coordinator import Coordinator
from databuild_dagster.features.operations.executor import Executor
from databuild_dagster.features.operations.job import Job
from databuild_dagster.features.operations.manager import DistributedOperation, DistributedOperationManager
from databuild_dagster.features.operations.operations import ExecutorHeartbeat
from databuild_dagster.model.commands import ArriveLots
from databuild_dagster.model.events import Arrival
from databuild_dagster.model.operations.keys import OperationId
from databuild_dagster.model.refs import Ref
from databuild_dagster.warehouse.threads import DaemonThreads

PARTS = ("store", "parallel", "validate", "index", "adopt")
#: Jobs that the killed executor has.
HELD = 100
#: Jobs of `parallel`, and how long one takes.
BUSY, BUSY_SECONDS = 40, 0.05
#: Lots that arrive in one command.
BULK = 10_000


class Trivial(DistributedOperation[Any]):
    """Does nothing, so that only what surrounds it takes time."""

    type_name = "trivial"

    def start_or_resume_job(self, arg: Any, partition: Any, context: Any) -> None:
        return


class Busy(DistributedOperation[Any]):
    """Waits, as for Spark, or computes outside of the interpreter's lock, as pandas does."""

    type_name = "busy"

    def start_or_resume_job(self, arg: Any, partition: Any, context: Any) -> None:
        if arg == "wait":
            time.sleep(BUSY_SECONDS)
        else:
            pbkdf2_hmac("sha256", b"", b"", arg)


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
    parser.add_argument("parts", nargs="*", default=["store"], metavar="PART", help=f"of {', '.join(PARTS)}")
    parser.add_argument("--jobs", type=int, default=10_000)
    parser.add_argument("--batch", type=int, nargs="*", default=[100, 10, 1])
    parser.add_argument("--url")
    parser.add_argument("--rounds", type=int, default=3, help="of validate and parallel; printed is the median")
    parser.add_argument("--clock", choices=clock.CLOCKS, default="wall", help="of store; cpu on a busy machine")
    parser.add_argument("--hold", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    clock.choose(arguments.clock)
    if arguments.hold:
        hold(arguments.url, OperationId.parse(arguments.hold))
    if unknown := set(arguments.parts) - set(PARTS):
        parser.error(f"there is no part {', '.join(sorted(unknown))}")
    if "store" in arguments.parts:
        store(arguments)
    if "parallel" in arguments.parts:
        parallel(arguments.rounds)
    if {"validate", "index"} & set(arguments.parts):
        provided(arguments)
    if "adopt" in arguments.parts:
        adopt(arguments.url)


def provided(arguments: argparse.Namespace) -> None:
    from bench.provided import index, validate, year_of_flights

    with year_of_flights() as year:
        if "validate" in arguments.parts:
            validate(year, arguments.rounds)
        if "index" in arguments.parts:
            index(year)


def store(arguments: argparse.Namespace) -> None:
    with tempfile.TemporaryDirectory() as folder:
        engine = opened(arguments.url or f"sqlite:///{Path(folder) / 'build.db'}")
        fill(engine, arguments.jobs)
        print(
            "| jobs at a time | start, ms | a job, ms | completion, ms | keys looked at per job: early | late | idle pass, ms |"
        )
        print("|---:|---:|---:|---:|---:|---:|---:|")
        for batch in arguments.batch:
            measured = measure(engine, arguments.jobs, batch)
            print(
                f"| {measured.batch} | {measured.start * 1e3:.1f} | {measured.jobs / arguments.jobs * 1e3:.3f} "
                f"| {measured.complete * 1e3:.0f} | {measured.keys_early:.1f} | {measured.keys_late:.1f} | {measured.idle * 1e3:.2f} |"
            )


def fill(engine: Engine, partitions: int) -> None:
    """So many live partitions of one dataset."""
    for first in range(0, partitions, BULK):
        keys = range(first, min(first + BULK, partitions))
        arrivals = tuple(Arrival(new_id(), Ref(f"a@{key:08}"), "bench", MANIFEST) for key in keys)
        engine.handle(ArriveLots(arrivals=arrivals))


def measure(engine: Engine, n_jobs: int, batch: int) -> Measured:
    manager = DistributedOperationManager(engine, [Trivial()])
    executor, coordinator = Executor(manager), Coordinator(manager)
    coordinator.coordinate()
    began = clock.seconds()
    id = manager.start("trivial", "a", None)
    started = clock.seconds()
    looked: list[int] = [coordinator.tracker.n_applied]
    pass_seconds = 0.0
    while executor.step(id, batch):
        passed = clock.seconds()
        coordinator.coordinate()
        pass_seconds = clock.seconds() - passed
        looked.append(coordinator.tracker.n_applied)
    done = clock.seconds()
    coordinator.coordinate()
    idle = clock.seconds()
    for _ in range(100):
        coordinator.coordinate()
    idle = (clock.seconds() - idle) / 100
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


def parallel(rounds: int) -> None:
    print("| 40 jobs of 50 ms | 1 thread, s | 2 threads, s | 4 threads, s |")
    print("|---|---:|---:|---:|")
    with tempfile.TemporaryDirectory() as folder:
        engine = opened(f"sqlite:///{Path(folder) / 'build.db'}")
        fill(engine, BUSY)
        manager = DistributedOperationManager(engine, [Busy()])
        began = time.perf_counter()
        pbkdf2_hmac("sha256", b"", b"", 100_000)
        n_hashes = int(100_000 * BUSY_SECONDS / (time.perf_counter() - began))
        for name, arg in (("that wait", "wait"), ("that compute", n_hashes)):
            found = {threads: [_in_threads(manager, arg, threads) for _ in range(rounds)] for threads in (1, 2, 4)}
            print(f"| {name} | {' | '.join(f'{median(seconds):.2f}' for seconds in found.values())} |")


def _in_threads(manager: DistributedOperationManager, arg: Any, n_threads: int) -> float:
    id, executor, threads = manager.start("busy", "a", arg), Executor(manager), DaemonThreads[None](n_threads, "bench")
    began = time.perf_counter()
    while executor.step(id, 10, threads) or executor.jobs:
        pass
    seconds = time.perf_counter() - began
    threads.close()
    Coordinator(manager).coordinate()
    return seconds


def adopt(url: str | None) -> None:
    print("| a killed executor's 100 jobs are adopted | s after the kill | lease periods |")
    print("|---|---:|---:|")
    with tempfile.TemporaryDirectory() as folder:
        url = url or f"sqlite:///{Path(folder) / 'build.db'}"
        engine = opened(url)
        fill(engine, HELD)
        for name, judge in (
            ("on the same machine", Judge()),
            ("by its silence alone", Judge(gone=lambda holder: False)),
        ):
            seconds = _adopted(engine, url, judge)
            print(f"| {name} | {seconds:.1f} | {seconds / LEASE_SECONDS:.2f} |")


def _adopted(engine: Engine, url: str, judge: Judge) -> float:
    """Seconds from the kill until another executor has all jobs."""
    manager = DistributedOperationManager(engine, [Trivial()])
    id = manager.start("trivial", "a", None)
    command = [sys.executable, "-m", "bench.operations", "--hold", str(id), "--url", url]
    pause = Event().wait
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline().strip() == str(HELD), "it has taken all jobs"
            executor = Executor(manager, judge=judge)
            # Who looks is awake all the time, and sees nothing to take as long as the other lives.
            for _ in range(12):
                assert not executor.take(id, HELD)
                pause(1.0)
        finally:
            process.kill()
    killed = time.perf_counter()
    taken: list[Job] = []
    while len(taken) < HELD:
        taken += executor.take(id, HELD)
        if len(taken) < HELD:
            pause(1.0)
    seconds = time.perf_counter() - killed
    executor.run(*taken)
    executor.flush()
    Coordinator(manager).coordinate()
    assert manager.running() == [], "it has ended, in spite of the kill"
    return seconds


def hold(url: str, id: OperationId) -> NoReturn:
    """Take jobs, say so, and live until another process kills this one."""
    executor = Executor(DistributedOperationManager(opened(url), [Trivial()]))
    taken = executor.take(id, HELD)
    with ExecutorHeartbeat(executor):
        print(len(taken), flush=True)
        while True:
            time.sleep(60)


if __name__ == "__main__":
    main()
