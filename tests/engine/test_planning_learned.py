"""An input that a function missed delays its next launch while the input is being built, and does no more (rule 6.3)."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from databuild_dagster.model import events as e
from databuild_dagster.model.datasets import DatasetKind
from databuild_dagster.model.states import LEASED, OPEN_WANTS, InstanceState, JobRunState
from tests.support import fixtures  # noqa: F401  (the profiles)
from tests.support.catalog import dataset
from tests.support.orchestrator import Orchestrator
from tests.support.world import World

_I = InstanceState


@pytest.fixture
def world(make_world):
    """`a` has learned of `b`, was built from it, and is due again, for it was tainted."""
    world = make_world(
        *(dataset(name) for name in "abcd"),
        dataset("source", kind=DatasetKind.SOURCE),
        dataset("far", location="elsewhere"),
    )
    learn(world, "a", "b")
    world.taint("a")
    assert world.due() == ["a"]
    return world


def learn(world: World, ref: str, *needed: str) -> None:
    """A build of the ref that called for others, got them, and is live."""
    if world.state(ref) is _I.LIVE:
        world.taint(ref)
    world.miss(ref, *needed)
    world.live(*(item for item in needed if world.state(item) is not _I.LIVE))
    world.clock.turn(60)
    world.succeed(ref, inputs=needed)


def launched(world: World, ref: str) -> bool:
    """Whether a tick launches it. Never is anything recorded of it because of what it learned."""
    here = Orchestrator(world)
    before = world.seq

    report = here.tick()

    assert ref not in report.missed
    assert launches_of(world, ref, before) == (world.state(ref) is _I.BUILDING)
    return world.state(ref) is _I.BUILDING


def launches_of(world: World, ref: str, after_seq: int) -> int:
    facts = [event.fact for event in world.queries.events.after(after_seq)]
    return sum(isinstance(fact, e.JobRunBuffered) and any(ref in run.refs for run in fact.runs) for fact in facts)


def unwanted(world: World, *refs: str) -> None:
    for ref in refs:
        world.cancel_want(*(want.id for want in world.open_wants(ref)))


# One row for each way an input may be, by what brings it there; and whether the launch waits.

WAYS: dict[str, tuple[Callable[[World], object], bool]] = {
    "live": (lambda w: None, False),
    "tainted, and due": (lambda w: w.taint("b"), True),
    "tainted, and without a want": (lambda w: (w.taint("b"), unwanted(w, "b")), False),
    "buffered": (lambda w: (w.taint("b"), w.buffer("b")), True),
    "running": (lambda w: (w.taint("b"), w.start("b")), True),
    "waiting for what is running": (lambda w: (w.taint("b"), w.miss("b", "c"), w.start("c")), True),
    "waiting for what is due": (lambda w: (w.taint("b"), w.miss("b", "c")), True),
    "waiting for what waits for what is running": (
        lambda w: (w.taint("b"), w.miss("b", "c"), w.miss("c", "d"), w.start("d")),
        True,
    ),
    "waiting for a source that is not there": (lambda w: (w.taint("b"), w.miss("b", "source")), False),
    "waiting for a source that is not there, and for what is running": (
        lambda w: (w.taint("b"), w.miss("b", "source", "c"), w.start("c")),
        True,
    ),
    "waiting for what is due in another location": (lambda w: (w.taint("b"), w.miss("b", "far")), False),
    "waiting for the ref itself": (lambda w: (w.taint("b"), w.miss("b", "a")), False),
    "failed": (lambda w: (w.taint("b"), w.fail("b")), False),
    "upstream failed": (lambda w: (w.taint("b"), w.miss("b", "c"), w.fail("c")), False),
    "waiting for its backoff": (lambda w: (w.taint("b"), w.fail("b", kind="transient")), True),
    "due again after its backoff": (
        lambda w: (w.taint("b"), w.fail("b", kind="transient"), w.clock.turn(600)),
        True,
    ),
    "up for retry, and without a want": (
        lambda w: (w.taint("b"), w.fail("b", kind="transient"), unwanted(w, "b")),
        False,
    ),
    "canceled by a person": (lambda w: (w.taint("b"), w.start("b"), w.cancel("b")), False),
}


@pytest.mark.parametrize("way", WAYS)
def test_a_learned_input_delays_the_launch_only_while_it_is_being_built(world, way):
    """Rule 6.3"""
    bring, waits = WAYS[way]
    bring(world)
    assert "a" in world.due()

    assert launched(world, "a") is not waits


@pytest.mark.parametrize("end", ["live", "failed"])
def test_what_waited_is_launched_as_soon_as_its_learned_input_has_ended(world, end):
    """Rule 6.3: a learned input is never the cause of anything; perhaps it is not needed any more."""
    world.taint("b")
    assert not launched(world, "a")
    assert not launched(world, "a")

    if end == "live":
        world.succeed("b")
    else:
        world.fail("b")

    assert launched(world, "a")


def test_an_asset_without_a_code_version_remembers(make_world):
    """Rule 6.3: no registration said that its code changed."""
    world = make_world(dataset("a", code_version=None), dataset("b"))
    here = Orchestrator(world)
    world.want("a")
    here.tick()
    world.miss("a", "b")
    world.live("b")
    world.clock.turn(60)
    here.tick()
    world.succeed("a")

    world.taint("a", "b")
    here.tick()

    assert world.states("a", "b") == [_I.TAINTED, _I.BUILDING]


def test_a_miss_that_the_orchestrator_records_teaches_nothing_and_makes_nothing_forgotten(make_world):
    """Rule 6.3: what it finds missing is declared."""
    world = make_world(dataset("declared"), dataset("a", "declared"), dataset("b"))
    here = Orchestrator(world)
    world.live("declared")
    learn(world, "a", "b")
    world.taint("a", "declared")
    assert "a" in here.tick().missed
    world.taint("b")
    world.start("b")
    world.succeed("declared")
    assert world.due() == ["a"]

    assert not launched(world, "a")


def test_two_refs_that_learned_of_each_other_do_not_wait_for_ever(make_world):
    """Rules 6.3, I11: at different times each needed the other, which is no cycle of dep misses."""
    world = make_world(dataset("a"), dataset("b"))
    learn(world, "a", "b")
    learn(world, "b", "a")

    world.taint("a", "b")
    Orchestrator(world).tick()

    assert world.states("a", "b") == [_I.BUILDING, _I.BUILDING]


def test_a_chain_of_learned_inputs_is_launched_from_its_end(make_world):
    """Rule 6.3: a due ref that waits itself holds back the next one."""
    names = [f"n{number}" for number in range(20)]
    world = make_world(*(dataset(name) for name in names))
    for name, needed in pairwise(names):
        world.want(name)
        learn(world, name, needed)
    world.taint(*names)
    here, order = Orchestrator(world), []

    for _ in names:
        here.tick()
        order += [run.refs[0] for run in world.queries.job_runs.newest(open_only=True)]
        world.succeed(order[-1])

    assert order == names[::-1]


def test_a_person_who_claims_the_ref_does_not_wait(world):
    """Rule 8.1: delaying is planning's; who runs it by hand runs it."""
    world.taint("b")
    world.start("b")

    world.claim("a")

    assert world.state("a") is _I.BUILDING


def test_a_tick_while_something_waits_changes_nothing(world):
    """Rule 11.3"""
    world.taint("b")
    here = Orchestrator(world)
    here.tick()
    here.start(here.launcher.last.launch_id)
    before = world.seq

    for _ in range(3):
        assert here.tick().idle

    assert world.seq == before


# Any graph, with needs that change between calls: circles of learned inputs arise by themselves.

NAMES = ["n0", "n1", "n2", "n3", "n4"]


@st.composite
def stories(draw):
    """Declared inputs; who may need whom besides, redrawn after each taint; and what is tainted on the way."""
    declared = {
        name: draw(st.lists(st.sampled_from(NAMES[:at]), max_size=1)) if at else [] for at, name in enumerate(NAMES)
    }
    orders = draw(st.lists(st.permutations(NAMES), min_size=1, max_size=3))
    taints = draw(st.lists(st.sampled_from(NAMES), max_size=20))
    return declared, orders, taints, draw(st.randoms(use_true_random=False))


@given(story=stories())
def test_every_delay_has_its_reason_and_an_end(story):
    """Rules 6.3, I11: the orders of the needs change, so that what was learned goes in circles."""
    declared, orders, taints, random = story
    world = World([dataset(name, *needs) for name, needs in declared.items()])
    here = Orchestrator(world)
    wants = [world.want(name, ttl=None) for name in NAMES]
    for _ in range(400):
        if taints and random.random() < 0.5 and world.state(taints[-1]) is _I.LIVE:
            world.taint(taints.pop())
        step(world, here, orders[len(taints) % len(orders)], declared, random)
        states = {world.want_state(want) for want in wants}
        if not states & OPEN_WANTS and not (taints and world.state(taints[-1]) is _I.LIVE):
            break

    assert not states & OPEN_WANTS, world.states(*NAMES)
    assert world.check() == []
    world.store.close()


def step(world, here, order, declared, random):
    """Five seconds: a tick, whose delays and launches are judged, and one job run that goes on."""
    world.clock.turn(5)
    learned = what_was_learned(world)
    building = {name for name in NAMES if world.state(name) is _I.BUILDING}
    before = world.seq

    here.tick(launches=100, open_launches=100)

    launched = {name for name in NAMES if launches_and_starts(world, name, before)}
    for name in launched:
        assert not learned.get(name, set()) & building, f"{name} is called although {learned[name] & building} is built"
    for name in world.due():
        assert leads_to_a_build(world, name, learned), f"{name} waits for nothing: {learned.get(name)}"
    assert_declared_alone_is_missed(world, declared, before)
    runs = [
        run
        for run in world.queries.job_runs.newest(open_only=True)
        if run.state in (JobRunState.QUEUED, JobRunState.RUNNING)
    ]
    for launch in world.queries.launches.open():
        if launch.dagster_run_id is None:
            here.start(launch.launch_id)
        world.engine.beat([launch.launch_id])
    if runs:
        finish(world, random.choice(runs).refs[0], order, random)


def finish(world, name, order, random):
    """Its function needs some of those that are before it in the present order."""
    needs = [item for item in order[: order.index(name)] if random.random() < 0.5]
    missing = [need for need in needs if world.state(need) is not _I.LIVE]
    if missing:
        world.miss(name, *missing)
    elif random.random() < 0.1:
        world.fail(name, kind="transient")
    else:
        world.succeed(name, inputs=needs)


def what_was_learned(world):
    """By ref, read off the log: the last dep miss of a job run that had begun."""
    begun: set[str] = set()
    learned: dict[str, set[str]] = {}
    for event in world.queries.events.after(0, 100_000):
        match event.fact:
            case e.JobRunStarted(job_run_ids=ids):
                begun.update(ids)
            case e.JobRunDepMissed(misses=misses):
                for miss in misses:
                    for impact in miss.impacted:
                        if miss.job_run_id in begun:
                            learned[impact.ref] = set(impact.missing if impact.verdict == "wait" else impact.learned)
    return learned


def leads_to_a_build(world, name, learned):
    """Whether something that it learned of is being built, or leads to what is; after a tick nothing else moves."""
    seen, level = {name}, set(learned.get(name, ()))
    while level - seen:
        for item in list(level - seen):
            seen.add(item)
            canonical = world.canonical(item)
            if canonical.state is _I.BUILDING or (canonical.retry_at or 0) > world.clock.now:
                return True
            if canonical.state in LEASED:
                level.update(world.queries.planning.missing_of(canonical.uuid))
            elif item in world.due():
                level.update(learned.get(item, ()))
    return False


def launches_and_starts(world, name, after_seq):
    """Launched by the tick, and not only recorded as missing."""
    missed = {
        miss.job_run_id
        for event in world.queries.events.after(after_seq)
        if isinstance(event.fact, e.JobRunDepMissed)
        for miss in event.fact.misses
    }
    return any(
        name in run.refs and run.job_run_id not in missed
        for event in world.queries.events.after(after_seq)
        if isinstance(event.fact, e.JobRunBuffered)
        for run in event.fact.runs
    )


def assert_declared_alone_is_missed(world, declared, after_seq):
    for event in world.queries.events.after(after_seq):
        if isinstance(event.fact, e.JobRunDepMissed):
            for miss in event.fact.misses:
                for impact in miss.impacted:
                    assert set(impact.missing) <= set(declared[impact.ref])
