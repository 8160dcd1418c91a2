"""A random walk of commands over any world, the same for the same seed. Every command there is may come; some are refused."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

from msgspec.structs import replace

from databuild_dagster.model import commands as c
from databuild_dagster.model.errors import NotFound, Refused
from databuild_dagster.model.events import (
    Arrival,
    Birth,
    BufferedRun,
    CanonicalReverted,
    ManifestRemoved,
    OutputFact,
    RunSuccess,
    TaintCanceled,
    TaintCreated,
)
from databuild_dagster.model.meta_storage import Put, Remove, RemovePrefix, do
from databuild_dagster.model.refs import asset_of, partition_key_of
from databuild_dagster.model.states import OPEN_WANTS, JobRunState, WantState
from databuild_dagster.store.queries.job_runs import JobRunView
from databuild_dagster.store.queries.wants import WantFilter
from databuild_dagster.store.removals import Removals

from .catalog import HERE
from .world import COMPLETE, EMPTY, World

#: Rows that builds write again.
EQUAL = replace(COMPLETE, content_hash="arrow-1:10:2a")


class Walk:
    """Takes steps in a world. The refs are those that the world has seen."""

    def __init__(self, world: World, seed: int | random.Random) -> None:
        self.world = world
        self.queries = world.queries
        self.rng = seed if isinstance(seed, random.Random) else random.Random(seed)
        with world.store.reading() as connection:
            self.refs = [str(ref) for (ref,) in connection.execute("SELECT ref FROM databuild_refs ORDER BY ref")]
        self.taints: list[str] = []
        self.promoted: dict[str, Birth] = {}
        self.n_refused = 0

    def take(self, n_steps: int) -> None:
        for _ in range(n_steps):
            step = self.rng.choice(STEPS)
            try:
                step(self)
            except (Refused, NotFound):
                self.n_refused += 1

    def some(self) -> tuple[str, ...]:
        return tuple(self.rng.sample(self.refs, self.rng.randint(1, 3)))

    def instance(self) -> tuple[str, str]:
        """(ref, uuid) of any instance."""
        ref = self.rng.choice(self.refs)
        if not (instances := self.queries.instances.history(ref)):
            raise NotFound(kind="instance", name=ref)
        return ref, self.rng.choice(instances).uuid

    def running(self) -> JobRunView:
        """A job run that runs; one is started where there is none."""
        if not self._of_state(JobRunState.RUNNING):
            self.launch()
        return self.rng.choice(self._of_state(JobRunState.RUNNING) or [_nothing("running job run")])

    def queued(self) -> JobRunView:
        return self.rng.choice(self._of_state(JobRunState.QUEUED) or [_nothing("queued job run")])

    def _of_state(self, state: JobRunState) -> list[JobRunView]:
        return [run for run in self.queries.job_runs.newest(open_only=True) if run.state is state]

    def runs(self, refs: tuple[str, ...]) -> tuple[BufferedRun, ...]:
        return tuple(BufferedRun(self.world.ids(), (ref,), partition_key_of(ref)) for ref in refs)

    # What people ask for

    def want(self) -> None:
        priority, ttl, sla = self.rng.randint(0, 2), self.rng.choice([None, 60.0]), self.rng.choice([None, 600.0])
        fail_fast = self.rng.random() < 0.3
        self.world.handle(
            c.CreateWants(
                wants=(self.some(),), priority=priority, ttl_seconds=ttl, sla_seconds=sla, fail_fast=fail_fast
            )
        )

    def want_again(self) -> None:
        self.world.handle(c.CreateWants(wants=tuple((ref,) for ref in self.some()), rebuild=True))

    def cancel_want(self) -> None:
        """An open one, or one that failed upstream, for which others may be kept."""
        states = tuple(self.rng.choice([OPEN_WANTS, (WantState.UPSTREAM_FAILED,)]))
        wants = self.queries.wants.newest(WantFilter(states=states)) or [_nothing("want")]
        self.world.cancel_want(self.rng.choice(wants).id, terminate=self.rng.random() < 0.5)

    def taint(self) -> None:
        outcome = self.world.handle(
            c.TaintPartitions(refs=self.some(), reason="looks wrong", downstream=self.rng.random() < 0.5)
        )
        self.taints += [outcome.taint_id] if outcome.taint_id else []

    def untaint(self) -> None:
        self.world.untaint(self.rng.choice(self.taints or [_nothing("taint")]))

    def revert(self) -> None:
        """Not by force: `check` objects to an instance that a forced revert brought back and whose files are replaced."""
        ref, uuid = self.instance()
        self.world.handle(c.RevertCanonical(ref=ref, uuid=uuid))

    def revert_event(self) -> None:
        """As if an event had pointed two refs to what they have: the first goes back to an instance that was live, the other had none."""
        ref, before = self.instance()
        seen = {ref: one for ref, one in self.queries.canonical.of([ref, *self.some()]).items() if one.uuid}
        was_live = before in {one.uuid for one in self.queries.instances.history(ref) if one.live_at is not None}
        moves = [c.Reversal(one, str(now.uuid), before if one == ref else None) for one, now in seen.items()]
        if not was_live or not moves:
            _nothing("event")
        self.world.handle(c.RevertEvent(seq=1, reversals=tuple(moves[:2]), reason="wrong"))

    def retry(self) -> None:
        self.world.handle(c.RetryRefs(refs=self.some()))

    def cancel_job_run(self) -> None:
        self.world.handle(c.CancelJobRuns(job_run_ids=(self.running().id,), keep_wants=self.rng.random() < 0.5))

    def pause(self) -> None:
        names = tuple(dict.fromkeys(self.rng.choice([ref, asset_of(ref)]) for ref in self.some()[:2]))
        until = self.rng.choice([None, self.world.clock.now + 60.0])
        self.world.handle(c.PausePartitions(refs=names, reason="later", until=until, terminate=self.rng.random() < 0.5))

    def resume(self) -> None:
        """All that is paused, or some of it."""
        with self.world.store.reading() as connection:
            paused = connection.execute(
                "SELECT ref FROM databuild_pauses WHERE ended_seq IS NULL ORDER BY ref"
            ).fetchall()
        names = [str(ref) for (ref,) in paused] or [_nothing("pause")]
        names = self.rng.choice([names, [asset_of(self.rng.choice(names))], [self.rng.choice(names)]])
        self.world.resume(*names)

    def claim(self) -> None:
        self.world.claim(*self.some(), dagster_run_id=self._requester(), by_person=self.rng.random() < 0.5)

    def give_up(self) -> None:
        self.world.handle(c.GiveUpDelegations(requester=self._requester(), reason="waited for 60 s"))

    def _requester(self) -> str:
        return f"requester-{self.rng.randint(1, 3)}"

    # What the orchestrator and the job runs do

    def launch(self) -> None:
        refs = (self.rng.choice(self.refs),)
        launch_id = self.world.ids()
        self.world.handle(c.CreateWants(wants=(refs,)))
        command = c.BufferLaunch(
            launch_id=launch_id, job=asset_of(refs[0]), location=HERE, owner="walker", runs=self.runs(refs)
        )
        if self.world.handle(command).events and self.rng.random() < 0.8:
            self.world.start_launch(launch_id)

    def start(self) -> None:
        self.world.start_launch(self.queued().launch_id)

    def lose(self) -> None:
        self.world.handle(c.LoseLaunches(launch_ids=(self.running().launch_id,), reason="its process is gone"))

    def succeed(self) -> None:
        run = self.running()
        inputs = {ref: seen.uuid for ref, seen in self.queries.canonical.of(self.some()).items() if seen.uuid}
        manifest = self.rng.choice([COMPLETE, EMPTY, EQUAL])
        outputs = tuple(OutputFact(ref=ref, inputs=inputs, manifest=manifest) for ref in run.refs)
        self.world.handle(c.SucceedJobRuns(runs=(RunSuccess(run.id, outputs),)))

    def miss(self) -> None:
        run = self.running()
        self.world.handle(c.MissDeps(misses=(c.RunMiss(run.id, dict.fromkeys(run.refs, self.some())),)))

    def fail(self) -> None:
        kind = self.rng.choice(["hard", "transient"])
        self.world.handle(c.FailJobRuns(failures=(c.RunFailure(self.running().id, "it raised", kind),)))

    def arrive(self) -> None:
        ref, origin = self.rng.choice(self.refs), f"file:///drop/{self.rng.randint(1, 9)}"
        self.world.handle(c.ArriveLots(arrivals=(Arrival(job_run_id=self.world.ids(), ref=ref, origin=origin),)))

    def borrow(self) -> None:
        ref = self.rng.choice(self.refs)
        inputs = {ref: seen.uuid for ref, seen in self.queries.canonical.of(self.some()).items() if seen.uuid}
        birth = Birth(job_run_id=self.world.ids(), job=asset_of(ref), ref=ref, inputs=inputs, manifest=COMPLETE)
        self.world.handle(c.BorrowInstances(births=(birth,)))

    def follow(self) -> None:
        borrowed = self.queries.instances.borrowed() or _nothing("borrowed instance")
        one = self.rng.choice(borrowed)
        taint_id = self.rng.choice([link.taint_id for link in self.queries.instances.taint_links([one.uuid])] or ["t"])
        facts = (
            TaintCreated(taint_id, (), "wrong", (one.uuid,), self.rng.random() < 0.5),
            TaintCanceled(taint_id),
            CanonicalReverted(one.ref, one.uuid),
            ManifestRemoved((one.uuid,), "erased"),
        )
        self.world.handle(c.FollowBase(facts=(self.rng.choice(facts),)))

    def promote(self) -> None:
        ref, again = self.rng.choice(self.refs), self.rng.random() < 0.3
        inputs = {ref: seen.uuid for ref, seen in self.queries.canonical.of(self.some()).items() if seen.uuid}
        birth = self.promoted.get(ref) if again else None
        birth = birth or self.world.birth(ref, **inputs)
        self.world.handle(self.world.promotion(birth, environment=self.world.ids(), ahead=True))
        self.promoted[ref] = birth

    def fire(self) -> None:
        self.world.fire()

    def replace_files(self) -> None:
        ref, uuid = self.instance()
        self.world.handle(c.ReplaceFiles(ref=ref, uuid=uuid, job_run_id=self.world.ids(), manifest=EQUAL))

    def remove(self) -> None:
        command = c.RemoveManifests(uuids=(self.instance()[1],), reason="superseded", tainted=self.rng.random() < 0.5)
        self.world.handle(command)

    def finish_removals(self) -> None:
        uuids = tuple(stored.uuid for stored in Removals(self.world.store).unfinished())
        self.world.handle(c.FinishRemovals(uuids=uuids or (_nothing("removal"),)))

    def invoke(self) -> None:
        key = self.rng.choice("abc")
        op = self.rng.choice([Put(f"{key}.x", b"1"), Remove(f"{key}.x"), RemovePrefix(f"{key}.")])
        self.world.invoke(do(op))

    def compact_meta(self) -> None:
        self.world.compact_meta()

    # What time does

    def pass_time(self) -> None:
        self.world.clock.turn(self.rng.choice([1.0, 60.0, 3600.0]))
        expiring, late = self.queries.wants.overdue(self.world.clock.now, 1000)
        if late:
            self.world.handle(c.MissSlas(want_ids=tuple(late)))
        if expiring:
            self.world.handle(c.ExpireWants(want_ids=tuple(expiring)))


def _nothing(kind: str) -> Any:
    raise NotFound(kind=kind, name="any")


#: The frequent ones more often.
STEPS: tuple[Callable[[Walk], None], ...] = (
    *[Walk.want, Walk.launch, Walk.succeed, Walk.miss] * 3,
    *[Walk.taint, Walk.fail, Walk.claim, Walk.pass_time] * 2,
    *[
        Walk.want_again,
        Walk.cancel_want,
        Walk.untaint,
        Walk.revert,
        Walk.revert_event,
        Walk.retry,
        Walk.cancel_job_run,
        Walk.give_up,
    ],
    *[
        Walk.start,
        Walk.lose,
        Walk.arrive,
        Walk.borrow,
        Walk.follow,
        Walk.promote,
        Walk.fire,
        Walk.replace_files,
        Walk.remove,
        Walk.finish_removals,
    ],
    *[Walk.invoke, Walk.compact_meta, Walk.pause, Walk.resume, Walk.resume],
)
