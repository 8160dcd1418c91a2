"""A supposition has the effects that the orchestrator's ticks would have, and nothing is recorded (rule 8.10)."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from databuild_dagster.engine.ports import DagsterRunState, DagsterRunStatus
from databuild_dagster.features.what_if.answers import Effect, Question, WhatIf
from databuild_dagster.features.what_if.questions import (
    HasArrived,
    NothingWasBuilt,
    if_code_changes,
    if_missing,
    if_tainted,
)
from databuild_dagster.model import commands as c
from databuild_dagster.model.datasets import DatasetKind
from databuild_dagster.model.errors import BeingBuilt, NotFound, NothingToTaint, Refused, UnknownAsset, UnknownPartition
from databuild_dagster.model.events import OutputFact, RunSuccess
from databuild_dagster.model.refs import Ref, asset_of, partition_key_of
from databuild_dagster.model.states import InstanceState, JobRunState
from databuild_dagster.store.queries.job_runs import JobRunView
from tests.features.what_if.suppositions import ask
from tests.support import fixtures  # noqa: F401  (the profiles)
from tests.support.catalog import HERE, dataset
from tests.support.orchestrator import Orchestrator
from tests.support.walk import STEPS, Walk
from tests.support.world import COMPLETE, World

DAYS = ("1", "2", "3")
#: Launches, misses and retries of a world of a dozen refs.
MAX_ROUNDS = 200


@pytest.fixture
def shop(make_world):
    """`report` needs all days of `daily`, each of which needs that day of `raw`."""
    return make_world(
        dataset("raw", keys=DAYS), dataset("daily", "raw", keys=DAYS), dataset("report", ("daily", "all"))
    )


def effects(found: WhatIf) -> dict[Ref, Effect]:
    return {change.ref: change.effect for change in found.changes}


def reason(found: WhatIf, ref: Ref) -> str:
    (change,) = [change for change in found.changes if change.ref == ref]
    return change.reason


# Taints


def test_an_open_want_gets_a_tainted_ref_built_again(shop):
    shop.live("raw@1")

    found = if_tainted(shop.engine, ["raw@1"])

    assert effects(found) == {"raw@1": Effect.BUILD}
    assert reason(found, "raw@1") == "tainted, as supposed, and an open want asks for it"
    assert (found.wants_reopened, found.wants_open, found.n_launches) == (1, 0, 1)


def test_a_tainted_ref_whose_want_has_expired_stays_tainted(shop):
    shop.want("raw@1", ttl=60)
    shop.live("raw@1")
    shop.clock.turn(61)

    found = if_tainted(shop.engine, ["raw@1"])

    assert effects(found) == {"raw@1": Effect.TAINTED}
    assert reason(found, "raw@1") == "tainted, as supposed; no open want asks for it"


def test_a_consumer_of_tainted_data_is_stale_and_with_downstream_tainted(shop):
    shop.live("raw@1")
    shop.want("daily@1", ttl=60)
    shop.succeed("daily@1", inputs=["raw@1"])
    shop.clock.turn(61)

    alone = if_tainted(shop.engine, ["raw@1"])
    downstream = if_tainted(shop.engine, ["raw@1"], downstream=True)

    assert effects(alone) == {"raw@1": Effect.BUILD, "daily@1": Effect.STALE}
    assert reason(alone, "daily@1") == "stays live; it was built from raw@1, which is replaced or tainted"
    assert effects(downstream) == {"raw@1": Effect.BUILD, "daily@1": Effect.TAINTED}
    assert reason(downstream, "daily@1") == "built from raw@1, tainted with it; no open want asks for it"


def test_a_paused_ref_stays_tainted_and_the_reason_names_the_pause(shop):
    shop.live("raw@1")
    shop.pause("raw", reason="the till is closed")

    found = if_tainted(shop.engine, ["raw@1"])

    assert effects(found) == {"raw@1": Effect.BLOCKED}
    assert "the till is closed" in reason(found, "raw@1")


def test_a_taint_that_is_refused_is_refused_as_a_supposition(shop):
    shop.start("raw@1")

    with pytest.raises(BeingBuilt):
        if_tainted(shop.engine, ["raw@1"])
    with pytest.raises(NothingToTaint):
        if_tainted(shop.engine, ["raw@2"])
    with pytest.raises(UnknownAsset):
        if_tainted(shop.engine, ["rwa@1"])


# Code


def test_new_code_builds_the_live_partitions_and_leaves_their_consumers_stale(shop):
    shop.live("raw@1", "raw@2")
    shop.succeed("daily@1", inputs=["raw@1"])

    found = if_code_changes(shop.engine, "raw")

    assert effects(found) == {"raw@1": Effect.BUILD, "raw@2": Effect.BUILD, "daily@1": Effect.STALE}
    assert reason(found, "raw@1") == "built by other code, as supposed"
    assert (found.n_launches, found.wants_reopened) == (1, 0)


def test_an_arc_that_follows_late_data_builds_its_lot_again(make_world):
    world = make_world(dataset("raw"), dataset("lot", "raw", subscribe=["raw"], follow_late=True))
    world.live("raw")
    world.fire()
    world.clock.turn(1)
    world.succeed("lot", inputs=["raw"])

    found = if_code_changes(world.engine, "raw")

    assert effects(found) == {"raw": Effect.BUILD, "lot": Effect.BUILD}
    assert reason(found, "lot") == "tainted by its arc: a source has new data"


def test_an_asset_without_live_partitions_has_nothing_to_build_again(shop):
    with pytest.raises(NothingWasBuilt):
        if_code_changes(shop.engine, "raw")
    with pytest.raises(UnknownAsset):
        if_code_changes(shop.engine, "rwa")


# Missing


def test_what_needs_a_ref_that_never_arrives_waits_and_the_rest_is_built(shop):
    shop.want("report")

    found = if_missing(shop.engine, ["raw@3"])

    built = {f"{asset}@{day}": Effect.BUILD for asset in ("raw", "daily") for day in ("1", "2")}
    waits = {"daily@3": Effect.WAIT, "report": Effect.WAIT}
    assert effects(found) == built | waits | {"raw@3": Effect.BLOCKED}
    assert reason(found, "report") == "waits for daily@3, for raw@3 never arrives"
    assert found.wants_open > 0


def test_what_nothing_wants_is_named_with_the_ref_that_it_needs(shop):
    found = if_missing(shop.engine, ["raw@3"])

    assert effects(found) == {"raw@3": Effect.BLOCKED, "daily@3": Effect.WAIT, "report": Effect.WAIT}
    assert reason(found, "daily@3") == "needs raw@3; no open want asks for it"


def test_a_live_ref_has_arrived(shop):
    shop.live("raw@1")

    with pytest.raises(HasArrived, match="raw@1 is live since 2023-11-14T22:13:20Z") as refused:
        if_missing(shop.engine, ["raw@1"])

    assert refused.value.advice == "`databuild plan --if-tainted raw@1` shows what follows if its data is wrong."
    with pytest.raises(UnknownPartition):
        if_missing(shop.engine, ["raw@4"])


# Time


def test_a_chain_takes_the_sum_of_its_jobs_and_a_job_that_is_out_the_rest(shop):
    for ref, seconds in (("raw@1", 10), ("daily@1", 20)):
        shop.start(ref)
        shop.clock.turn(seconds)
        shop.succeed(ref, inputs=["raw@1"] if ref == "daily@1" else [])
    shop.start("raw@2")
    shop.clock.turn(4)
    shop.want("report")

    found = if_tainted(shop.engine, ["raw@1"], downstream=True)
    joined = if_missing(shop.engine, ["raw@3"])

    assert [(stage.job, stage.begins_after, stage.seconds) for stage in found.launches] == [
        ("raw", 0.0, 10.0),
        ("daily", 10.0, 20.0),
    ]
    assert (found.seconds, found.seconds_of_all) == (30.0, 30.0)
    assert [(stage.job, stage.begins_after, stage.is_joined) for stage in joined.launches] == [
        ("raw", -4.0, True),
        ("daily", 6.0, False),
    ]
    assert joined.seconds == 26.0
    assert effects(joined)["raw@2"] is Effect.JOIN


def test_a_job_without_history_is_named(shop):
    shop.want("report")

    found = if_missing(shop.engine, ["raw@3"])

    assert (found.seconds, found.seconds_of_all, found.without_history) == (None, None, ("raw", "daily"))
    assert [stage.n_launches for stage in found.launches] == [1, 1]


# Any world


class Steps(Walk):
    """All steps but the passing of time: with it, launches would have a history, and wants would end during the simulation."""

    def take(self, n_steps: int) -> None:
        steps = [step for step in STEPS if step is not Walk.pass_time]
        for _ in range(n_steps):
            try:
                self.rng.choice(steps)(self)
            except (Refused, NotFound):
                self.n_refused += 1


def a_world(seed: int, n_steps: int) -> World:
    world = World(
        [
            dataset("feed", kind=DatasetKind.SOURCE),
            dataset("raw", keys=DAYS),
            dataset("days", "raw", "feed", keys=DAYS, most=1),
            dataset("sums", "days", keys=DAYS),
            dataset("left", ("raw", "1"), job="both"),
            dataset("right", job="both"),
            dataset("lots", subscribe=[("raw", "same")], keys=DAYS),
            dataset("late", ("sums", "all"), subscribe=["right"], follow_late=True),
        ]
    )
    refs = [f"{asset}@{day}" for asset in ("raw", "days", "sums", "lots") for day in DAYS]
    world.want(*refs[:6], "feed")
    for ref in ("left", "right", "late", *refs[6:]):
        world.want(ref)
    world.arrive("feed", "file:///drop/0")
    Steps(world, seed).take(n_steps)
    world.fire()
    return world


def tables_of(world: World) -> str:
    """Every row of every table."""
    with world.store.reading() as connection:
        return "\n".join(connection.iterdump())


def read_before(world: World) -> dict[Ref, tuple[Ref, ...]]:
    """Of each ref the inputs of its canonical instance that it does not declare."""
    found: dict[Ref, tuple[Ref, ...]] = {}
    for ref, inputs in refs_read(world).items():
        declared = {need.asset for need in world.catalog.datasets[asset_of(ref)].inputs}
        found[ref] = tuple(need for need in inputs if asset_of(need) not in declared)
    return found


def refs_read(world: World) -> dict[Ref, list[Ref]]:
    with world.store.reading() as connection:
        pairs = connection.execute(
            "SELECT r.ref, x.ref FROM databuild_refs r JOIN databuild_instance_inputs n ON n.instance_id = r.canonical_id "
            "JOIN databuild_refs x ON x.id = n.ref_id ORDER BY x.ref"
        ).fetchall()
    found: dict[Ref, list[Ref]] = {}
    for ref, need in pairs:
        found.setdefault(ref, []).append(need)
    return found


class Project:
    """A project whose functions read what they read before, and none of which fails."""

    def __init__(self, world: World, never: tuple[Ref, ...]) -> None:
        self.world, self.never = world, never
        self.reads = read_before(world)
        self.orchestrator = Orchestrator(world)
        # Dagster has of the source what the store has recorded.
        if (seen := world.canonical("feed")).state is InstanceState.LIVE and seen.known_origin is not None:
            self.orchestrator.foreign.materialize("feed", seen.known_origin)

    def carry_out(self, reached: tuple[Ref, ...]) -> None:
        """Tick until nothing moves, and build nothing else than these refs and what they need."""
        world = self.world
        for _ in range(MAX_ROUNDS):
            for launch in world.queries.launches.open():
                run = DagsterRunState(launch.dagster_run_id or f"run-of-{launch.launch_id}", DagsterRunStatus.RUNNING)
                self.orchestrator.launcher.runs[launch.launch_id] = run
                world.engine.beat([launch.launch_id])
            self.orchestrator.tick(serving=reached)
            for launch in world.queries.launches.open():
                if launch.dagster_run_id is None:
                    world.start_launch(launch.launch_id)
            runs = world.queries.job_runs.newest(open_only=True)
            ending = [
                run
                for run in runs
                if run.state is JobRunState.RUNNING
                and not set(run.refs) & set(self.never)
                and set(run.refs) & set(reached)
            ]
            for run in ending:
                self.end(run)
            if not ending:
                retries = [
                    seen.retry_at
                    for ref, seen in world.queries.canonical.of(reached).items()
                    if seen.retry_at is not None
                    and seen.retry_at > world.clock.now
                    and world.queries.planning.standings([ref], seen.retry_at)[ref].is_wanted
                ]
                if not retries:
                    return
                world.clock.turn(min(retries) - world.clock.now)
        raise AssertionError(f"the world moves after {MAX_ROUNDS} rounds")

    def refs(self) -> list[Ref]:
        with self.world.store.reading() as connection:
            return [str(ref) for (ref,) in connection.execute("SELECT ref FROM databuild_refs")]

    def end(self, run: JobRunView) -> None:
        missing: dict[Ref, tuple[Ref, ...]] = {}
        outputs = []
        for ref in run.refs:
            asked = self.reads.get(ref, ())
            needs = [
                *self.world.catalog.inputs(self.world.catalog.datasets[asset_of(ref)], partition_key_of(ref)),
                *asked,
            ]
            known = self.world.queries.canonical.of(needs)
            if absent := tuple(need for need in asked if known[need].state is not InstanceState.LIVE):
                missing[ref] = absent
            inputs = {need: seen.uuid for need, seen in known.items() if seen.uuid is not None}
            origin = f"file:///drop/{run.id}" if ref == "feed" else None
            outputs.append(OutputFact(ref=ref, inputs=inputs, manifest=COMPLETE, origin=origin))
            if origin is not None:
                self.orchestrator.foreign.materialize(ref, origin)
        if missing:
            self.world.handle(c.MissDeps(misses=(c.RunMiss(run.id, missing),)))
        else:
            self.world.handle(c.SucceedJobRuns(runs=(RunSuccess(run.id, tuple(outputs)),)))


def do(world: World, question: Question, ref: Ref, named: tuple[Ref, ...], *, downstream: bool) -> None:
    """What the question supposes."""
    match question:
        case Question.TAINT:
            world.handle(c.TaintPartitions(refs=(ref,), reason="wrong", downstream=downstream))
        case Question.CODE:
            specs = world.queries.datasets.all().values()
            changed = tuple(
                msgspec.structs.replace(spec, code_version="2") if spec.asset == asset_of(ref) else spec
                for spec in specs
            )
            world.handle(c.RegisterDatasets(location=HERE, datasets=changed))
            world.handle(c.CreateWants(wants=tuple((live,) for live in named), rebuild=True))
        case Question.MISSING:
            pass


@settings(deadline=None, max_examples=40)
@given(
    seed=st.integers(0, 1_000_000),
    n_steps=st.integers(0, 60),
    at=st.integers(0, 1_000),
    question=st.sampled_from(Question),
    downstream=st.booleans(),
)
def test_the_answer_is_what_happens_and_the_question_changes_nothing(
    seed: int, n_steps: int, at: int, question: Question, downstream: bool
) -> None:
    world = a_world(seed, n_steps)
    refs = sorted(Project(world, ()).refs())
    ref = refs[at % len(refs)]
    before, tables = world.queries.canonical.of(refs), tables_of(world)

    try:
        found = ask(world, question, [ref], downstream=downstream)
    except Refused:
        assert tables_of(world) == tables
        return
    unchanged = tables_of(world)
    do(world, question, ref, found.named, downstream=downstream)
    Project(world, found.named if question is Question.MISSING else ()).carry_out(found.reached)

    after = world.queries.canonical.of(sorted({*refs, *found.reached}))
    assert unchanged == tables
    assert {c.ref: c.after for c in found.changes} == {c.ref: after[c.ref].state for c in found.changes}
    named = {change.ref for change in found.changes}
    still = [name for name in found.reached if name not in named and name in before]
    assert {name: before[name].uuid for name in still if before[name].state is InstanceState.LIVE} == {
        name: after[name].uuid for name in still if before[name].state is InstanceState.LIVE
    }
    moved = {
        name
        for name, seen in before.items()
        if seen.state is InstanceState.LIVE and (after[name].uuid, after[name].state) != (seen.uuid, seen.state)
    }
    if question is not Question.MISSING:
        assert moved <= set(found.reached)
    world.close()
