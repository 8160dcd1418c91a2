"""Event streams beside ticks: a real web server, a process that holds the streams, and a tick that launches something.

python -m bench.page_streams PORT N    holds N streams until its input ends, and prints the events of each
"""

from __future__ import annotations

import asyncio
import gc
import json
import os
import statistics
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from bench.engine.commands import NothingForeign
from bench.engine.filling import LOCATION, fill, opened, success
from databuild_dagster.data.home import DATABASE_NAME
from databuild_dagster.engine.engine import Engine
from databuild_dagster.engine.judge import Judge
from databuild_dagster.engine.ports import DagsterRunState, LaunchOrder
from databuild_dagster.engine.tick import tick
from databuild_dagster.engine.tick_pass import Pass
from databuild_dagster.model.commands import CreateWants, StartLaunch
from databuild_dagster.model.refs import Ref
from tests.support.free_port import free_port

#: Partitions of the store, wants of a turn, ticks of a block, and ticks of a block that are not counted.
PARTITIONS = 10_000
WANTS = 20
TICKS = 30
WARM_UP = 3
#: Seconds until the server answers, and until it has ended.
START_SECONDS, STOP_SECONDS = 120.0, 60.0
URL = "http://127.0.0.1:{port}/databuild/api/v1"


def print_streams(home: Path, n_streams: int, blocks: int) -> None:
    """A line: a tick without and with streams, in blocks that take turns."""
    (home / "dagster.yaml").write_text("telemetry: {enabled: false}\n")
    engine = opened(f"sqlite:///{home / DATABASE_NAME}")
    fill(engine, PARTITIONS)
    turns = _Turns(engine)
    without: list[float] = []
    beside: list[float] = []
    with web_server(home, "--empty-workspace") as port:
        for _ in range(blocks):
            without.append(turns.seconds())
            with streams(port, n_streams) as held:
                began = engine.queries.events.head().seq
                beside.append(turns.seconds())
                n_events = engine.queries.events.head().seq - began
            assert held.n_events == n_streams * n_events, f"{held.n_events} of {n_streams} × {n_events} events"
    alone, together = (1000 * statistics.median(seconds) / TICKS for seconds in (without, beside))
    print(
        "| a tick that launches 20 refs, processor | without streams, ms | beside them, ms | ratio |\n|---|---|---|---|"
    )
    print(
        f"| {n_streams} event streams, {blocks} × {TICKS} ticks | {alone:.2f} | {together:.2f} | {together / alone:.2f} |"
    )


class _Launches:
    """Takes launches, which are started and succeed after the tick."""

    def __init__(self) -> None:
        self.orders: list[LaunchOrder] = []

    def launch(self, order: LaunchOrder) -> None:
        self.orders.append(order)

    def dagster_runs(self, launches: dict[str, str | None]) -> dict[str, DagsterRunState]:
        return {}

    def fail_dagster_run(self, dagster_run_id: str, message: str) -> None:
        raise AssertionError("nothing fails")


class _Turns:
    """Wants, a tick that launches them, and their builds; the tick is measured."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._launches = _Launches()
        self._tick = Pass(engine, LOCATION, self._launches, NothingForeign(), Judge(), owner="bench")
        self._n = 0

    def seconds(self) -> float:
        """The processor's, of this process, for the ticks of a block."""
        gc.collect()
        return sum([self._turn() for _ in range(WARM_UP + TICKS)][WARM_UP:])

    def _turn(self) -> float:
        self._n += 1
        refs = [Ref(f"a@turn-{self._n}-{number}") for number in range(WANTS)]
        self._engine.handle(CreateWants(wants=tuple((ref,) for ref in refs), ttl_seconds=None))
        began = time.process_time()
        report = tick(self._tick)
        spent = time.process_time() - began
        assert report.launched, "the tick launches the wanted refs"
        for launch_id in report.launched:
            self._engine.handle(StartLaunch(launch_id=launch_id, dagster_run_id=launch_id, holder="bench"))
            job_runs = self._engine.queries.job_runs.of_launch(launch_id)
            self._engine.handle(success({job_run.refs[0]: job_run.id for job_run in job_runs}))
        return spent


@contextmanager
def web_server(home: Path, *arguments: str) -> Iterator[int]:
    """`databuild dev --no-daemon` over a home, as a process; the port."""
    port = free_port()
    with (home / "webserver.log").open("w") as log:
        process = subprocess.Popen(
            [
                sys.executable,
                "-m",
                "databuild_dagster",
                "dev",
                "--no-daemon",
                "--host",
                "127.0.0.1",
                "-p",
                str(port),
                *arguments,
            ],
            env=os.environ | {"DAGSTER_HOME": str(home)},
            stdout=log,
            stderr=log,
        )
        try:
            _wait_for(URL.format(port=port) + "/head", process)
            yield port
        finally:
            process.terminate()
            try:
                process.wait(STOP_SECONDS)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def _wait_for(url: str, process: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + START_SECONDS
    while True:
        try:
            urllib.request.urlopen(url, timeout=5).close()
            return
        except (urllib.error.URLError, OSError):
            assert process.poll() is None, "the web server has ended"
            assert time.monotonic() < deadline, f"{url} does not answer"
            time.sleep(0.2)


class Held:
    """The streams of another process; their events are known at the end."""

    n_events = 0


@contextmanager
def streams(port: int, n: int) -> Iterator[Held]:
    """So many streams, held open by a process."""
    arguments = [sys.executable, "-m", "bench.page_streams", str(port), str(n)]
    process = subprocess.Popen(arguments, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    held = Held()
    assert process.stdout is not None
    try:
        assert process.stdout.readline() == "open\n", "a stream does not open"
        yield held
        with urllib.request.urlopen(URL.format(port=port) + "/head", timeout=30) as answer:
            last = json.load(answer)["seq"]
        out, _ = process.communicate(f"{last}\n", timeout=STOP_SECONDS)
        held.n_events = int(out)
    finally:
        if process.poll() is None:
            process.kill()
        process.wait()


async def _hold(port: int, n: int) -> None:
    followed = [_Stream(port) for _ in range(n)]
    await asyncio.gather(*(stream.open() for stream in followed))
    print("open", flush=True)
    tasks = [asyncio.create_task(stream.follow()) for stream in followed]
    last = int(await asyncio.to_thread(sys.stdin.readline))
    async with asyncio.timeout(STOP_SECONDS / 2):
        await asyncio.gather(*(stream.reach(last) for stream in followed))
    for task in tasks:
        task.cancel()
    print(sum(stream.n_events for stream in followed))


class _Stream:
    def __init__(self, port: int) -> None:
        self._port = port
        self._moved = asyncio.Event()
        self._seq = 0
        self.n_events = 0

    async def open(self) -> None:
        self._reader, self._writer = await asyncio.open_connection("127.0.0.1", self._port, limit=1 << 24)
        self._writer.write(b"GET /databuild/api/v1/stream HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
        while not (await self._reader.readline()).startswith(b"id:"):
            pass

    async def follow(self) -> None:
        while line := await self._reader.readline():
            if line.startswith(b"id:"):
                self._seq = int(line[3:])
                self.n_events += 1
                self._moved.set()

    async def reach(self, seq: int) -> None:
        while self._seq < seq:
            self._moved.clear()
            await self._moved.wait()


if __name__ == "__main__":
    asyncio.run(_hold(int(sys.argv[1]), int(sys.argv[2])))
