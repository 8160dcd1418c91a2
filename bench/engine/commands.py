"""Seconds of single commands and questions, at several sizes of the store and against the floor.

The floor and every size take turns in short blocks, so that other work of the machine meets all of them. Half of
the commands are about refs that are new, half about some that lie anywhere among the old ones.
"""

from __future__ import annotations

import random
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping
from typing import Any

from bench.engine import clock
from bench.engine.databases import Floor
from bench.engine.filling import LOCATION, built, lease, name_of, nothing, sizes, success
from databuild_dagster.engine.engine import Engine
from databuild_dagster.engine.holders import new_id
from databuild_dagster.engine.judge import Judge
from databuild_dagster.engine.planning import Plan, RoomLeft, plan_due
from databuild_dagster.engine.ports import DagsterRunState, LaunchOrder, Observation
from databuild_dagster.engine.set_aside import SetAside
from databuild_dagster.engine.tick_pass import Pass, TickLimits
from databuild_dagster.engine.why.explain import explain
from databuild_dagster.engine.why.preview import annotate
from databuild_dagster.model import commands as c
from databuild_dagster.model.datasets import DatasetSpec
from databuild_dagster.model.events import BufferedRun
from databuild_dagster.model.plan import plan
from databuild_dagster.model.refs import Ref

#: Rounds before it is another size's turn, and how many of them warm up and are not counted.
BLOCK, WARM_UP = 50, 5

#: Seconds by what was done.
Seconds = dict[str, list[float]]


class NothingForeign:
    """There is nothing but ours."""

    def observe(self, refs: tuple[Ref, ...]) -> dict[Ref, Observation]:
        return {}


class NoLauncher:
    """Dagster, with nothing to do."""

    def launch(self, order: LaunchOrder) -> None:
        raise AssertionError("nothing is launched")

    def dagster_runs(self, launches: dict[str, str | None]) -> dict[str, DagsterRunState]:
        return {}

    def fail_dagster_run(self, dagster_run_id: str, message: str) -> None:
        raise AssertionError("nothing fails")


def tick_of(engine: Engine, most: int) -> Pass:
    """A tick that looks at so many refs; it is made once for all its levels of planning."""
    limits = TickLimits(due_refs=most)
    return Pass(engine, LOCATION, NoLauncher(), NothingForeign(), Judge(), owner="bench", limits=limits)


def planned(this: Pass, datasets: dict[int, DatasetSpec]) -> Plan:
    """What one level of planning would launch."""
    return plan_due(this, datasets, SetAside(), now=this.engine.now(), room=RoomLeft(20, 20, Counter(), frozenset()))


class Commands:
    """Everything that can be asked of an engine, once in a round."""

    def __init__(self, engine: Engine, partitions: int) -> None:
        self.engine = engine
        self.seconds: Seconds = defaultdict(list)
        #: The same for every size but for the range that it picks from.
        self._random = random.Random(7)
        self._old = sizes(partitions).pairs
        self._fresh = partitions
        self._datasets = engine.queries.datasets.all(LOCATION)
        self._tick = tick_of(engine, 10_000)

    def round(self) -> None:
        self.life()
        self._canceled()
        self._failed()
        self._missed()
        self._claimed()
        self._tainted()
        self._reverted()
        self._asked()

    def _timed(self, name: str, function: Callable[[], Any]) -> Any:
        began = clock.seconds()
        result = function()
        self.seconds[name].append(clock.seconds() - began)
        return result

    def _handle(self, name: str, command: c.Command) -> Any:
        return self._timed(name, lambda: self.engine.handle(command))

    def _new(self, asset: str) -> Ref:
        self._fresh += 1
        return Ref(f"{asset}@{name_of(self._fresh)}")

    def _any(self, asset: str) -> Ref:
        return Ref(f"{asset}@{name_of(self._random.randrange(self._old))}")

    def life(self) -> None:
        """The four commands of a ref that is built."""
        ref, launch = self._new("a"), new_id()
        run = BufferedRun(new_id(), (ref,), ref[2:])
        self._handle("want", c.CreateWants(wants=((ref,),)))
        buffer = c.BufferLaunch(launch_id=launch, job="a", location=LOCATION, owner="bench", runs=(run,))
        self._handle("buffer", buffer)
        self._handle("start", c.StartLaunch(launch_id=launch, dagster_run_id="bench", holder="bench"))
        self._handle("success", success({ref: run.job_run_id}))

    def _plan_due(self) -> None:
        found = planned(self._tick, self._datasets)
        assert len(found.launches) == 1

    def _canceled(self) -> None:
        want = self.engine.handle(c.CreateWants(wants=((self._new("a"),),)))
        self._timed("plan of what is due", self._plan_due)
        self._handle("cancel", c.CancelWants(ids=want.want_ids))

    def _failed(self) -> None:
        ref = self._new("a")
        (job_run,) = lease(self.engine, [ref]).values()
        self._handle("fail", c.FailJobRuns(failures=(c.RunFailure(job_run, "it raised"),)))
        again = self._handle("retry", c.RetryRefs(refs=(ref,)))
        self.engine.handle(c.CancelWants(ids=again.want_ids))

    def _missed(self) -> None:
        ref = self._new("b")
        (job_run,) = lease(self.engine, [ref]).values()
        self._handle("dep miss", c.MissDeps(misses=(c.RunMiss(job_run, {ref: (Ref(f"a{ref[1:]}"),)}),)))
        wants = self.engine.queries.wants.of_ref(ref)
        self.engine.handle(c.CancelWants(ids=(wants[0].id,)))

    def _claimed(self) -> None:
        ref = self._new("a")
        run = BufferedRun(new_id(), (ref,), ref[2:])
        claim = c.ClaimRefs(
            launch_id=new_id(), job="a", location=LOCATION, dagster_run_id=new_id(), holder="bench", runs=(run,)
        )
        self._handle("claim", claim)
        self.engine.handle(success({ref: run.job_run_id}))

    def _tainted(self) -> None:
        tainted = self._handle("taint", c.TaintPartitions(refs=(self._any("b"),), reason="bench"))
        self._handle("untaint", c.UntaintPartitions(taint_id=tainted.taint_id))

    def _reverted(self) -> None:
        ref = self._any("a")
        first = self.engine.queries.canonical.of([ref])[ref].uuid
        assert first is not None
        self.engine.handle(c.TaintPartitions(refs=(ref,), reason="bench"))
        built(self.engine, [ref], nothing, want=False)
        self._handle("revert", c.RevertCanonical(ref=ref, uuid=first))

    def _asked(self) -> None:
        ref, queries = self._any("b"), self.engine.queries
        self._timed("want of what is live", lambda: self.engine.handle(c.CreateWants(wants=((ref,),))))
        self._timed(
            "show", lambda: (queries.canonical.of([ref]), queries.instances.history(ref), queries.wants.of_ref(ref))
        )
        self._timed("explain", lambda: explain(self.engine, ref))
        datasets = {spec.asset: spec for spec in self._datasets.values()}
        self._timed("plan", lambda: annotate(self.engine, plan([ref], datasets, self.engine.catalog)))


def in_turns(
    floor: Floor, commands: Mapping[int, Commands], rounds: int, do: Callable[[Commands], None] = Commands.round
) -> tuple[list[float], dict[int, Seconds]]:
    """Seconds of raw transactions, and by number of partitions of everything that was done."""
    raw: list[float] = []
    seconds: dict[int, Seconds] = {size: defaultdict(list) for size in commands}
    for _ in range(0, rounds, BLOCK - WARM_UP):
        raw += [floor.seconds() for _ in range(5 * BLOCK)][WARM_UP:]
        for size, command in commands.items():
            command.seconds.clear()
            for _ in range(BLOCK):
                do(command)
            for name, taken in command.seconds.items():
                seconds[size][name] += taken[WARM_UP:]
    return raw, seconds
