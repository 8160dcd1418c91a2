"""Ticks take earlier instances back, plans name them, and arcs follow them as any publication (rules 4.9, 10.5)."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from msgspec.structs import replace

from databuild_dagster.engine import returning
from databuild_dagster.engine.ports import Sample, sample_of_build
from databuild_dagster.engine.returning import provide
from databuild_dagster.model import commands as c
from databuild_dagster.model.datasets import CodeSpec, DatasetSpec
from databuild_dagster.model.events import OutputFact, RunSuccess
from databuild_dagster.model.refs import Ref
from databuild_dagster.model.states import InstanceState
from tests.support.arcs import fired_by
from tests.support.catalog import HERE, dataset
from tests.support.orchestrator import Orchestrator
from tests.support.questions import recorded_questions
from tests.support.world import COMPLETE, World

LIVE = InstanceState.LIVE
CODE = CodeSpec(digest="1:4f2a")


def coded(made: DatasetSpec, version: str) -> DatasetSpec:
    return replace(made, code_version=version, code=CODE, deterministic=True)


#: `sums` of `raw`, and two that follow it: `late` is built again for late data.
DATASETS = (
    dataset("raw"),
    dataset("sums", "raw"),
    dataset("report", "sums"),
    dataset("late", "sums", subscribe=["sums"], follow_late=True),
)


def edit(world: World, version: str, *assets: str, build: bool = False) -> None:
    """Edit the code of assets and ask for their builds, which are done or not."""
    specs = tuple(coded(spec, version) if spec.asset in assets else spec for spec in DATASETS)
    world.handle(c.RegisterDatasets(location=HERE, datasets=specs))
    world.handle(c.CreateWants(wants=(assets,), fresh=True))
    for asset in assets if build else ():
        built(world, asset, version)


def built(world: World, asset: str, version: str = "1") -> None:
    (needed,) = [needed.asset for needed in world.catalog.datasets[asset].inputs]
    output = OutputFact(ref=Ref(asset), inputs={Ref(needed): world.uuid(needed)}, code_version=version)
    output = replace(output, manifest=COMPLETE)
    world.handle(c.SucceedJobRuns(runs=(RunSuccess(world.job_run(asset), (output,)),)))


@pytest.fixture
def world(make_world: Callable[..., World]) -> World:
    world = make_world(*DATASETS)
    world.live("raw")
    for asset in ("sums", "report", "late"):
        built(world, asset)
    world.fire()
    return world


@pytest.fixture
def here(world: World) -> Orchestrator:
    return Orchestrator(world, providers=[provide])


@pytest.fixture
def sample() -> Iterator[Sample]:
    """No instance has such a small place in a sample."""
    sample = Sample(1e-9)
    token = sample_of_build.set(sample)
    yield sample
    sample_of_build.reset(token)


def test_a_tick_takes_a_chain_back_and_launches_nothing(world: World, here: Orchestrator) -> None:
    first = [world.uuid(ref) for ref in ("sums", "report")]
    edit(world, "2", "sums", "report", build=True)
    edit(world, "1", "sums", "report")

    here.tick()

    assert [world.uuid(ref) for ref in ("sums", "report")] == first
    assert world.states("sums", "report") == [LIVE, LIVE]
    assert [order.job for order in here.launcher.orders if order.job != "late"] == []


def test_a_plan_names_what_would_come_back_and_records_nothing(world: World) -> None:
    edit(world, "2", "sums", "report", build=True)
    edit(world, "1", "sums", "report")
    before = world.seq

    found = provide(world.engine, [Ref("report")], is_plan=True)

    assert sorted(found.reused) == ["report", "sums"]
    assert all(why.endswith(", whose code and inputs are equal") for why in found.reused.values())
    assert (list(found.live), world.seq) == ([], before)


def test_a_tick_of_a_build_with_a_sample_launches_one_ref_and_takes_the_others_back(
    world: World, here: Orchestrator, sample: Sample
) -> None:
    edit(world, "2", "sums", "report", build=True)
    edit(world, "1", "sums", "report")
    assert sorted(provide(world.engine, [Ref("report")], is_plan=True).reused) == ["report", "sums"]

    here.tick()
    here.tick()

    assert world.states("sums", "report") == [LIVE, InstanceState.BUILDING]
    assert sample.is_met
    assert [build.ref for build in world.queries.instances.second_builds([Ref("sums"), Ref("report")])] == ["report"]


def test_a_sample_that_has_a_ref_already_needs_no_further_one(world: World, sample: Sample) -> None:
    sample.is_met = True
    edit(world, "2", "sums", build=True)
    edit(world, "1", "sums")

    assert list(provide(world.engine, [Ref("sums")]).live) == ["sums"]


def test_a_ref_that_was_never_set_aside_by_code_costs_no_command(world: World) -> None:
    edit(world, "1", "sums")
    world.taint("sums")
    world.want("sums")
    before = world.seq

    assert not provide(world.engine, [Ref("sums"), Ref("raw")]).live
    assert world.seq == before


def test_nothing_is_asked_where_nothing_is_deterministic(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    edit(world, "2", "sums")
    asked = recorded_questions(monkeypatch)

    for is_plan in (False, True):
        provide(world.engine, [Ref("sums")], is_plan=is_plan, specs=DATASETS)

    assert asked == []


def test_a_plan_looks_at_no_more_refs_than_a_plan_may_have(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """`report` could come back with `sums` alone."""
    edit(world, "2", "sums", "report", build=True)
    edit(world, "1", "sums", "report")
    monkeypatch.setattr(returning, "MAX_PLANNED_REFS", 1)

    assert provide(world.engine, [Ref("report")], is_plan=True).reused == {}


def test_what_comes_back_wakes_an_arc_that_was_built_from_what_it_replaces(world: World, here: Orchestrator) -> None:
    first = world.uuid("sums")
    edit(world, "2", "sums", build=True)
    world.fire()
    built(world, "late")
    edit(world, "1", "sums")

    here.tick()
    here.tick()

    assert world.uuid("sums") == first
    assert world.state("late") is InstanceState.BUILDING, "its rows are those of the other code"
    assert fired_by(world.store, "late").count(first) == 2


def test_what_came_back_is_the_newest_firing_and_new_data_of_an_older_build(world: World, here: Orchestrator) -> None:
    """Rule 10.5"""
    first = world.uuid("sums")
    edit(world, "2", "sums", build=True)
    world.fire()
    built(world, "late")
    lot = world.uuid("late")
    edit(world, "1", "sums")
    world.clock.turn(60)
    here.tick()

    world.fire()

    assert world.queries.datasets.last_firings(["late"])["late"].uuid == first
    (late,) = world.queries.datasets.late_inputs([lot], 5)
    assert (late.ref, late.uuid, late.arrived_at >= late.built_at + 60) == ("sums", first, True)


def test_what_comes_back_wakes_no_arc_that_was_built_from_it(world: World, here: Orchestrator) -> None:
    edit(world, "2", "sums")
    edit(world, "1", "sums")

    here.tick()
    here.tick()

    assert world.states("sums", "late") == [LIVE, LIVE]


def test_a_lot_that_was_being_built_meanwhile_is_checked_again(world: World, here: Orchestrator) -> None:
    first, other = world.uuid("sums"), ""
    edit(world, "2", "sums", build=True)
    other = world.uuid("sums")
    world.fire()
    job_run = world.job_run("late")
    edit(world, "1", "sums")
    here.tick()
    assert world.uuid("sums") == first
    world.fire()

    output = OutputFact(ref=Ref("late"), inputs={Ref("sums"): other}, code_version="1", manifest=COMPLETE)
    world.handle(c.SucceedJobRuns(runs=(RunSuccess(job_run, (output,)),)))
    here.tick()
    here.tick()

    assert world.state("late") is InstanceState.BUILDING


def test_an_arc_that_is_behind_fires_once_for_an_instance_that_was_built_and_came_back(world: World) -> None:
    edit(world, "2", "sums", build=True)
    first = world.uuid("sums")
    edit(world, "1", "sums", build=True)
    edit(world, "2", "sums")
    assert list(provide(world.engine, [Ref("sums")]).live) == ["sums"]

    world.fire()

    assert fired_by(world.store, "late").count(first) == 1
    assert world.check() == []


def test_a_key_that_means_another_window_now_is_built(world: World) -> None:
    edit(world, "2", "sums", build=True)
    edit(world, "1", "sums")
    world.catalog.is_moved = lambda dataset, key, before: True

    assert not provide(world.engine, [Ref("sums")]).live
