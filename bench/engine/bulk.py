"""What moves many refs at once: batches, what they unblock, planning, cascades and rebuilds."""

from __future__ import annotations

import statistics
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

from bench.engine import clock
from bench.engine.commands import NoLauncher, NothingForeign, planned, tick_of
from bench.engine.filling import LOCATION, lease, name_of, opened, sizes, success
from databuild_dagster.engine.engine import Engine
from databuild_dagster.engine.holders import new_id
from databuild_dagster.engine.judge import Judge
from databuild_dagster.engine.tick import tick
from databuild_dagster.engine.tick_pass import Pass
from databuild_dagster.model import commands as c
from databuild_dagster.model.events import BufferedRun
from databuild_dagster.model.refs import Ref
from databuild_dagster.store.format import PREFIX
from databuild_dagster.store.rebuild import rebuild

#: Refs of a batch.
BATCH = 1_000
#: Refs of one plan.
DUE = 10_000


class Fresh:
    """Keys that no store has, far behind those of single commands."""

    def __init__(self, first: int) -> None:
        self._next = first

    def keys(self, n: int) -> list[str]:
        self._next += n
        return [name_of(key) for key in range(self._next - n, self._next)]


def seconds_of(engine: Engine, command: c.Command) -> float:
    began = clock.seconds()
    engine.handle(command)
    return clock.seconds() - began


def want_of_a_batch(engine: Engine, fresh: Fresh) -> float:
    """Seconds of one want of many new refs."""
    refs = tuple(Ref(f"a@{key}") for key in fresh.keys(BATCH))
    seconds = seconds_of(engine, c.CreateWants(wants=(refs,), request_id=f"batch {refs[0]}"))
    engine.handle(c.CancelWants(ids=(f"batch {refs[0]}",)))
    return seconds


def success_of_a_batch(engine: Engine, fresh: Fresh) -> float:
    """Seconds of a success of many job runs, of the refs of one want."""
    refs = [Ref(f"a@{key}") for key in fresh.keys(BATCH)]
    engine.handle(c.CreateWants(wants=(tuple(refs),)))
    return seconds_of(engine, success(lease(engine, refs, want=False)))


def success_that_unblocks(engine: Engine, fresh: Fresh) -> float:
    """The same where each of them is waited for by one other."""
    keys = fresh.keys(BATCH)
    waiting = lease(engine, [Ref(f"b@{key}") for key in keys])
    engine.handle(
        c.MissDeps(misses=tuple(c.RunMiss(job_run, {ref: (Ref(f"a{ref[1:]}"),)}) for ref, job_run in waiting.items()))
    )
    seconds = seconds_of(engine, success(lease(engine, [Ref(f"a@{key}") for key in keys], want=False)))
    # Due now, and out of the way in the next round.
    states = engine.queries.canonical.of(list(waiting))
    assert all(state.state == "UpForRetry" for state in states.values())
    engine.handle(success(lease(engine, list(waiting), want=False)))
    return seconds


class IdleTicks:
    """Ticks that find nothing to do, and what of them the database takes: its reads, and the note in the heartbeats."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._judge = Judge()
        self._seconds = 0.0
        store, heartbeats = engine.store, engine.heartbeats
        ask, beat = store.ask, heartbeats.beat

        def timed_ask(sql: str, parameters: Any) -> list[tuple[Any, ...]]:
            began = clock.seconds()
            answer = ask(sql, parameters)
            self._seconds += clock.seconds() - began
            return answer

        def timed_beat(launch_ids: list[str], at: float) -> None:
            began = clock.seconds()
            beat(launch_ids, at)
            self._beating += clock.seconds() - began

        store.ask = timed_ask  # type: ignore[method-assign, assignment]
        heartbeats.beat = timed_beat  # type: ignore[method-assign, assignment]

    def tick(self) -> tuple[float, float, float]:
        """Seconds of the state, of the heartbeats, and of the whole tick."""
        self._seconds = self._beating = 0.0
        began = clock.seconds()
        report = tick(Pass(self._engine, LOCATION, NoLauncher(), NothingForeign(), self._judge, owner="bench"))
        taken = clock.seconds() - began
        assert report.idle
        return self._seconds, self._beating, taken


class Planning:
    """Planning of many due refs, half of them with an input that is live."""

    def __init__(self, engine: Engine, partitions: int, fresh: Fresh) -> None:
        self._tick = tick_of(engine, DUE)
        self._datasets = engine.queries.datasets.all(LOCATION)
        old = [Ref(f"b@{name_of(key)}") for key in range(min(DUE // 2, sizes(partitions).pairs))]
        engine.handle(c.TaintPartitions(refs=tuple(old), reason="to be rebuilt"))
        new = [Ref(f"a@{key}") for key in fresh.keys(DUE - len(old))]
        engine.handle(c.CreateWants(wants=tuple((ref,) for ref in old + new), ttl_seconds=None))

    def seconds(self) -> float:
        began = clock.seconds()
        found = planned(self._tick, self._datasets)
        taken = clock.seconds() - began
        assert sum(len(command.runs) for command, _ in found.launches) == DUE
        return taken


def cascade_seconds(engine: Engine, *, reopens: bool) -> tuple[float, float]:
    """Of a taint of the root with all that was made of it, and of taking it back.

    Everything was wanted once, for ever; that opens again. Or else for a week, a month ago.
    """
    if not reopens:
        with engine.store.writing() as work:
            # What the wants would be had they been recorded so; filling another store takes a quarter of an hour.
            work.connection.execute(f"UPDATE {PREFIX}wants SET expires_at = created_at + {c.DEFAULT_TTL_SECONDS}")
        engine.clock = lambda: time.time() + 30 * 24 * 3600
    began = clock.seconds()
    tainted = engine.handle(c.TaintPartitions(refs=(Ref(f"root@{name_of(0)}"),), reason="bench", downstream=True))
    taken = clock.seconds() - began
    assert tainted.taint_id is not None
    return taken, seconds_of(engine, c.UntaintPartitions(taint_id=tainted.taint_id))


def megabytes() -> float:
    """The most that this process ever had. Not `ru_maxrss`, in which the process that started it is counted too."""
    (line,) = (line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmHWM"))
    return int(line.split()[1]) / 1024


def rebuilt(url: str) -> tuple[int, float, float]:
    """(events, seconds, megabytes) of a rebuild in this process."""
    store = opened(url).store
    began = clock.seconds()
    events = rebuild(store)
    return events, clock.seconds() - began, megabytes()


def turns_of_commands(engine: Engine, turns: Callable[[], int]) -> dict[str, float]:
    """How often each single command waits for the server, on average; the first ones, which prepare, not counted."""
    fresh, found = Fresh(60_000_000), defaultdict[str, list[int]](list)
    for _ in range(30):
        ref = Ref(f"a@{fresh.keys(1)[0]}")
        run = BufferedRun(new_id(), (ref,), ref[2:])
        launch = new_id()
        life: dict[str, c.Command] = {
            "want": c.CreateWants(wants=((ref,),)),
            "buffer": c.BufferLaunch(launch_id=launch, job="a", location=LOCATION, owner="bench", runs=(run,)),
            "start": c.StartLaunch(launch_id=launch, dagster_run_id="bench", holder="bench"),
            "success": success({ref: run.job_run_id}),
        }
        for name, command in life.items():
            before = turns()
            engine.handle(command)
            found[name].append(turns() - before)
    return {name: statistics.mean(counts[10:]) for name, counts in found.items()}


def used(url: str) -> float:
    """Megabytes of this process after it used the engine over a store for a while."""
    engine, fresh = opened(url), Fresh(50_000_000)
    for _ in range(100):
        engine.handle(success(lease(engine, [Ref(f"a@{key}") for key in fresh.keys(1)])))
    return megabytes()


def in_a_process(function: str, url: str) -> tuple[float, ...]:
    """What a function of this file says in a process of its own."""
    code = (
        f"from bench.engine import bulk, clock; clock.choose({clock.chosen()!r}); found = bulk.{function}({url!r}); "
        "print(*(found if isinstance(found, tuple) else [found]))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return tuple(float(item) for item in done.stdout.split())
