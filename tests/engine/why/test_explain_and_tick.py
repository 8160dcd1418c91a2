"""The next tick does what `explain` says of it, in any world (rules 11.1, 15)."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from databuild_dagster.engine.orchestrator_notes import note_tick
from databuild_dagster.engine.ports import DagsterRunState, DagsterRunStatus
from databuild_dagster.engine.tick_pass import TickLimits
from databuild_dagster.engine.why.explain import explain
from databuild_dagster.model.datasets import DatasetKind
from databuild_dagster.model.states import LEASED
from tests.support import fixtures  # noqa: F401  (the profiles)
from tests.support.catalog import HERE, dataset
from tests.support.orchestrator import Orchestrator
from tests.support.walk import Walk
from tests.support.world import World

KEYS = ("1", "2", "3", "4")
REFS = ["feed", "raw", *(f"days@{key}" for key in KEYS), *(f"sums@{key}" for key in KEYS), "left", "right", "all"]


def a_world(seed: int, n_steps: int, concurrency: int | None) -> World:
    """Some steps after everything was wanted."""
    world = World(
        [
            dataset("feed", kind=DatasetKind.SOURCE),
            dataset("raw"),
            dataset("days", "raw", keys=KEYS, most=1, concurrency=concurrency),
            dataset("sums", "days", keys=KEYS, most=2),
            dataset("left", job="both"),
            dataset("right", job="both"),
            dataset("all", "left", "feed", ("sums", "all")),
        ]
    )
    world.want(*REFS, ttl=600)
    walk = Walk(world, seed)
    walk.take(n_steps)
    return world


def orchestrator_of(world: World) -> Orchestrator:
    """Dagster has a run for each launch, so that the tick starts none again."""
    orchestrator = Orchestrator(world)
    for launch in world.queries.launches.open():
        run = DagsterRunState(launch.dagster_run_id or launch.launch_id, DagsterRunStatus.RUNNING)
        orchestrator.launcher.runs[launch.launch_id] = run
    return orchestrator


def refs_with(world: World, words: str) -> set[str]:
    """The refs of which these words are said."""
    return {ref for ref in REFS if any(c.ref == ref and words in c.why for c in explain(world.engine, ref).causes)}


worlds = {
    "seed": st.integers(0, 1_000_000),
    "n_steps": st.integers(0, 60),
    "concurrency": st.sampled_from([None, 1, 2]),
}


@settings(max_examples=60)
@given(**worlds, launches=st.integers(1, 4), open_launches=st.integers(1, 6))
def test_the_next_tick_launches_exactly_what_explain_says(seed, n_steps, concurrency, launches, open_launches):
    world = a_world(seed, n_steps, concurrency)
    orchestrator = orchestrator_of(world)
    note_tick(world.engine, HERE, TickLimits(launches=launches, open_launches=open_launches), 5.0)
    # A tick of a command first records the dep misses: what they want may be more urgent.
    orchestrator.tick(launches=0)
    announced = refs_with(world, ": the next tick launches it")
    leased = {ref for ref in REFS if world.state(ref) in LEASED}

    orchestrator.tick(launches=launches, open_launches=open_launches)

    assert announced == {ref for ref in REFS if world.state(ref) in LEASED} - leased
    world.close()


@settings(max_examples=60)
@given(**worlds)
def test_the_next_tick_records_the_misses_that_explain_says(seed, n_steps, concurrency):
    world = a_world(seed, n_steps, concurrency)
    orchestrator = orchestrator_of(world)
    due = set(world.due())
    announced = refs_with(world, "which the next tick wants for it")

    report = orchestrator.tick()

    missed = set(report.missed) & due
    assert missed <= announced
    # A miss before it in the same tick may have ended their common want.
    assert not any(world.open_wants(ref) for ref in announced - missed)
    world.close()
