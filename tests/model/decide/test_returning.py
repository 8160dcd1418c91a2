"""An earlier instance comes back in place of a build, if its code and inputs are equal and nobody doubted it (rule 4.9)."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from databuild_dagster.model import commands as c
from databuild_dagster.model.datasets import CodeSpec, DatasetSpec
from databuild_dagster.model.errors import NotFound, Refused
from databuild_dagster.model.events import Birth, InstancesReturned, MadeWith, OutputFact, RunSuccess
from databuild_dagster.model.refs import Ref
from databuild_dagster.model.states import InstanceState, WantState
from tests.support.catalog import HERE, dataset
from tests.support.model_world import ModelWorld
from tests.support.world import COMPLETE, World

LIVE, TAINTED = InstanceState.LIVE, InstanceState.TAINTED
NEEDS = {"a": (), "b": ("a",), "c": ("b",)}


def spec(asset: str, written: str, **options: Any) -> DatasetSpec:
    made = dataset(asset, *NEEDS[asset], code_version=None)
    return replace(made, **{"deterministic": True, "code": CodeSpec(digest=f"1:{written}")} | options)


class Shop:
    """`b` is made of `a`, and `c` of `b`; each has code that a person edits."""

    def __init__(self, world: World, content_hash: str | None = None, built: tuple[str, ...] = tuple(NEEDS)) -> None:
        self.world = world
        self.specs = {name: spec(name, "old") for name in NEEDS}
        self._register()
        self.build(*built, content_hash=content_hash)

    def _register(self) -> None:
        datasets = tuple(self.specs.values())
        self.world.catalog.datasets = {one.asset: one for one in datasets}
        self.world.handle(c.RegisterDatasets(location=HERE, datasets=datasets))

    def edit(self, asset: str, written: str, **options: Any) -> None:
        self.specs[asset] = spec(asset, written, **options)
        self._register()

    def build(self, *refs: str, inputs: Iterable[str] | None = None, content_hash: str | None = None) -> str:
        """Build refs by the present code; the uuid of the last."""
        for ref in refs:
            self.begin(ref)
            self.end(ref, inputs, content_hash)
        return self.world.uuid(refs[-1])

    def begin(self, ref: str) -> None:
        launch_id = self.world.buffer(ref)
        made_with = MadeWith(code=self.specs[ref].code_text)
        command = c.StartLaunch(launch_id=launch_id, dagster_run_id=f"run-{launch_id}", holder="x", made_with=made_with)
        self.world.handle(command)

    def end(self, ref: str, inputs: Iterable[str] | None = None, content_hash: str | None = None) -> None:
        read = {name: self.world.uuid(name) for name in (NEEDS[ref] if inputs is None else inputs)}
        manifest = replace(COMPLETE, content_hash=content_hash)
        output = OutputFact(ref=Ref(ref), inputs=read, manifest=manifest)
        self.world.handle(c.SucceedJobRuns(runs=(RunSuccess(self.world.job_run(ref), (output,)),)))

    def fresh(self, *refs: str, rebuild: bool = False) -> str:
        return self.world.handle(c.CreateWants(wants=(refs,), fresh=not rebuild, rebuild=rebuild)).want_ids[0]

    def back(self, *refs: str, since_seq: int = 0) -> list[str]:
        """The refs that get an earlier instance, of those that are asked for."""
        asked = tuple(c.Returnable(Ref(ref), tuple(map(Ref, NEEDS[ref])), since_seq) for ref in refs)
        facts = [event.fact for event in self.world.handle(c.ReturnInstances(refs=asked)).events]
        return [one.ref for fact in facts if isinstance(fact, InstancesReturned) for one in fact.returns]

    def edited_and_edited_back(self, asset: str) -> str:
        """The first instance, after a build by other code; the code is the first again and a build is asked for."""
        first = self.world.uuid(asset)
        self.edit(asset, "new")
        self.fresh(asset)
        self.build(asset)
        self.edit(asset, "old")
        self.fresh(asset)
        return first


@pytest.fixture
def shop(make_world) -> Shop:
    return Shop(make_world(*(spec(name, "old") for name in NEEDS)))


def test_code_that_is_edited_and_edited_back_takes_the_first_instance_back(shop: Shop) -> None:
    first = shop.edited_and_edited_back("b")
    want = shop.world.queries.wants.of_ref("b")[-1].id

    assert shop.back("b") == ["b"]

    assert (shop.world.state("b"), shop.world.uuid("b")) == (LIVE, first)
    assert shop.world.want_state(want) is WantState.SUCCESSFUL
    assert not shop.world.queries.instances.stale([shop.world.uuid("c")]), "c was built from the first instance"
    assert shop.world.check() == []


def test_an_asset_without_an_input_is_built(shop: Shop) -> None:
    shop.edited_and_edited_back("a")

    assert shop.back("a") == []


def test_another_instance_of_the_input_is_a_build(shop: Shop) -> None:
    shop.edited_and_edited_back("b")
    shop.world.taint("a")
    while_tainted = shop.back("b")

    shop.build("a")

    assert while_tainted == shop.back("b") == []


def test_a_chain_comes_back_in_one_event(shop: Shop) -> None:
    for name in "bc":
        shop.edit(name, "new")
    shop.fresh("b", "c")
    shop.build("b", "c")
    for name in "bc":
        shop.edit(name, "old")
    shop.fresh("b", "c")

    assert shop.back("c", "b") == ["b", "c"]

    assert shop.world.states("b", "c") == [LIVE, LIVE]


def test_what_other_code_made_and_nothing_has_replaced_comes_back_as_it_was(shop: Shop) -> None:
    first = shop.world.uuid("b")
    shop.edit("b", "new")
    shop.fresh("b")
    shop.edit("b", "old")

    assert shop.back("b") == ["b"]

    assert (shop.world.state("b"), shop.world.uuid("b")) == (LIVE, first)


def test_an_attempt_of_other_code_that_is_retried_gives_way(shop: Shop) -> None:
    first = shop.world.uuid("b")
    shop.edit("b", "new")
    shop.fresh("b")
    shop.world.fail("b", kind="transient")
    assert shop.world.state("b") is InstanceState.UP_FOR_RETRY
    assert shop.back("b") == []
    shop.edit("b", "old")

    assert shop.back("b") == ["b"]

    assert (shop.world.state("b"), shop.world.uuid("b")) == (LIVE, first)


def test_a_ref_that_waited_for_an_input_comes_back_if_that_has_equal_rows(make_world) -> None:
    shop = Shop(make_world(*(spec(name, "old") for name in NEEDS)), content_hash="x:1")
    first = shop.world.uuid("b")
    shop.edit("b", "new")
    shop.fresh("b")
    shop.world.taint("a")
    shop.world.miss("b", "a")
    shop.edit("b", "old")
    shop.build("a", content_hash="x:1")
    assert shop.world.state("b") is InstanceState.UP_FOR_RETRY

    assert (shop.back("b"), shop.world.uuid("b")) == (["b"], first)


@pytest.mark.parametrize(
    "doubt",
    [
        "the first while it was live",
        "the first, and it was canceled",
        "the first after it was replaced",
        "the second",
        "the second, and it was canceled",
        "downstream, of its input",
        "a twin with the same code and inputs",
        "a rebuild was asked for",
        "a rebuild was asked for while it was set aside",
    ],
)
def test_a_taint_of_the_ref_or_of_equal_builds_ends_it_for_good(shop: Shop, doubt: str) -> None:
    world, first = shop.world, shop.world.uuid("b")
    if "while it was live" in doubt:
        world.taint("b")
    elif "it was canceled" in doubt and "first" in doubt:
        world.untaint(world.taint("b"))
    elif "twin" in doubt:
        world.taint("b")
        shop.build("b")
    elif doubt == "a rebuild was asked for":
        shop.fresh("b", rebuild=True)
        shop.build("b")
    shop.edit("b", "new")
    shop.fresh("b")
    shop.build("b")
    if "replaced" in doubt:
        world.handle(c.TaintPartitions(refs=(), uuids=(first,), reason="wrong"))
    elif doubt == "the second":
        world.taint("b")
    elif "second" in doubt:
        world.untaint(world.taint("b"))
    elif "downstream" in doubt:
        world.untaint(world.handle(c.TaintPartitions(refs=("a",), reason="wrong", downstream=True)).taint_id or "")
    shop.edit("b", "old")
    shop.fresh("b")
    if "set aside" in doubt:
        shop.fresh("b", rebuild=True)

    assert shop.back("b") == []

    assert world.state("b") is TAINTED


def test_a_taint_of_what_came_back_is_ended_by_a_build(shop: Shop) -> None:
    shop.edited_and_edited_back("b")
    shop.back("b")
    shop.world.taint("b")

    assert shop.back("b") == []
    assert shop.world.state("b") is TAINTED


def test_a_tainted_instance_with_equal_rows_of_other_code_ends_it(make_world) -> None:
    shop = Shop(make_world(*(spec(name, "old") for name in NEEDS)))
    shop.world.taint("b")
    shop.build("b", content_hash="x:1")
    shop.edit("b", "new")
    shop.fresh("b")
    shop.build("b", content_hash="x:1")
    shop.world.taint("b")
    shop.build("b", content_hash="x:2")
    shop.edit("b", "old")
    shop.fresh("b")

    assert shop.back("b") == []


@pytest.mark.parametrize("why", ["removed", "erased", "erased input", "other partitions"])
def test_data_that_is_not_what_a_build_would_make_stays_where_it_is(shop: Shop, why: str) -> None:
    world, first = shop.world, shop.world.uuid("b")
    if why == "erased":
        manifest = replace(COMPLETE, rows=9)
        command = c.ReplaceFiles(ref=Ref("b"), uuid=first, job_run_id=world.ids(), manifest=manifest, erased=True)
        world.handle(command)
    shop.edit("b", "new")
    shop.fresh("b")
    shop.build("b")
    if why == "removed":
        world.handle(c.RemoveManifests(uuids=(first,), reason="gc"))
    elif why == "erased input":
        uuid = world.uuid("a")
        command = c.ReplaceFiles(ref=Ref("a"), uuid=uuid, job_run_id=world.ids(), manifest=COMPLETE, erased=True)
        world.handle(command)
    shop.edit("b", "old")
    shop.fresh("b")

    assert shop.back("b", since_seq=world.seq if why == "other partitions" else 0) == []


def test_a_paused_ref_waits_as_it_is(shop: Shop) -> None:
    shop.edited_and_edited_back("b")
    shop.world.pause("b")

    assert shop.back("b") == []
    shop.world.resume("b")
    assert shop.back("b") == ["b"]


def test_an_instance_of_the_base_of_an_environment_does_not_come_back(make_world) -> None:
    """The base may have erased it."""
    shop = Shop(make_world(*(spec(name, "old") for name in NEEDS)), built=("a",))
    code, inputs = shop.specs["b"].code_text, {Ref("a"): shop.world.uuid("a")}
    birth = Birth(job_run_id=shop.world.ids(), job="b", ref=Ref("b"), inputs=inputs, code=code, manifest=COMPLETE)
    shop.world.handle(c.BorrowInstances(births=(birth,)))

    shop.edited_and_edited_back("b")

    assert shop.back("b") == []


def test_compacted_rows_come_back(shop: Shop) -> None:
    world = shop.world
    for ref in "ab":
        uuid = world.uuid(ref)
        world.handle(c.ReplaceFiles(ref=Ref(ref), uuid=uuid, job_run_id=world.ids(), manifest=COMPLETE))
    compacted = shop.edited_and_edited_back("b")

    assert (shop.back("b"), world.uuid("b")) == (["b"], compacted)


@pytest.mark.parametrize(
    "options",
    [
        {"deterministic": False},
        {"code": CodeSpec(digest=None, unknown=("it reads a file",))},
        {"code": CodeSpec(digest="1:old", settings=("mailer",))},
    ],
    ids=["without the option", "unknown code", "a resource"],
)
def test_an_asset_whose_rows_do_not_follow_from_code_and_inputs_is_built(shop: Shop, options: dict[str, Any]) -> None:
    shop.edited_and_edited_back("b")
    shop.edit("b", "old", **options)

    assert shop.back("b") == []


def test_a_code_version_decides_alone(make_world) -> None:
    shop = Shop(make_world(*(spec(name, "old") for name in NEEDS)))
    first = shop.edited_and_edited_back("b")
    shop.edit("b", "old", code_version="2")

    assert shop.back("b") == []
    shop.edit("b", "old")
    assert (shop.back("b"), shop.world.uuid("b")) == (["b"], first)


def test_an_input_that_was_not_declared_then_is_a_build(shop: Shop) -> None:
    shop.edited_and_edited_back("b")
    asked = c.Returnable(Ref("b"), (Ref("a"), Ref("c")))

    assert not shop.world.handle(c.ReturnInstances(refs=(asked,))).events


def test_a_leased_or_live_ref_keeps_its_instance(shop: Shop) -> None:
    shop.edited_and_edited_back("b")
    shop.begin("b")

    assert shop.back("b", "c") == []


def test_a_rebuild_of_an_attempt_that_is_retried_builds(shop: Shop) -> None:
    shop.edit("b", "new")
    shop.fresh("b")
    shop.world.fail("b", kind="transient")
    shop.edit("b", "old")

    shop.fresh("b", rebuild=True)

    assert shop.back("b") == []


class Acts:
    """Anything happens to the shop in any order."""

    def __init__(self, data: st.DataObject) -> None:
        self.draw = data.draw
        self.world = ModelWorld(tuple(spec(name, "old") for name in NEEDS))
        self.shop = Shop(self.world, "x:1")
        #: Instances that a person marked as wrong once, or that were built from such rows under a downstream taint.
        self.wrong: set[str] = set()
        self.taints: list[str] = []

    def edit(self, ref: str) -> None:
        """To the other code, and ask for the builds, which begins at once or not."""
        is_old = self.shop.specs[ref] == spec(ref, "old")
        self.shop.edit(ref, "new" if is_old else "old")
        self.shop.fresh(ref)
        if self.draw(st.booleans()):
            self.build(ref)

    def rebuild(self, ref: str) -> None:
        if self.world.state(ref) is LIVE:
            self.wrong.add(self.world.uuid(ref))
        self.shop.fresh(ref, rebuild=True)

    def build(self, ref: str) -> None:
        if all(self.world.state(name) is LIVE for name in NEEDS[ref]) and self.is_due(ref):
            self.shop.build(ref, content_hash=self.draw(st.sampled_from(["x:1", "x:2", None])))

    def fail(self, ref: str) -> None:
        if self.is_due(ref):
            self.world.fail(ref, kind="transient")

    def is_due(self, ref: str) -> bool:
        self.world.clock.turn(3_600)
        return self.world.state(ref) in (TAINTED, InstanceState.UP_FOR_RETRY)

    def taint(self, ref: str) -> None:
        downstream = self.draw(st.booleans())
        uuid = self.draw(st.sampled_from(sorted(self.uuids(ref))))
        command = c.TaintPartitions(refs=(), uuids=(uuid,), reason="wrong", downstream=downstream)
        self.taints.append(self.world.handle(command).taint_id or "")
        self.wrong.add(uuid)

    def untaint(self, ref: str) -> None:
        self.world.untaint(self.draw(st.sampled_from([*self.taints, "none"])))

    def compact(self, ref: str) -> None:
        erased = self.draw(st.booleans())
        uuid = self.world.uuid(ref)
        manifest, job_run_id = replace(COMPLETE, content_hash=None), self.world.ids()
        command = c.ReplaceFiles(ref=Ref(ref), uuid=uuid, job_run_id=job_run_id, manifest=manifest, erased=erased)
        self.world.handle(command)

    def remove(self, ref: str) -> None:
        uuid = self.draw(st.sampled_from(sorted(self.uuids(ref))))
        self.world.handle(c.RemoveManifests(uuids=(uuid,), reason="gc", tainted=self.draw(st.booleans())))

    def back(self, ref: str) -> None:
        view = self.world.view
        before = {name: self.world.state(name) for name in NEEDS}
        for came in self.shop.back(*self.draw(st.permutations(list(NEEDS)))):
            assert before[came] in (TAINTED, InstanceState.UP_FOR_RETRY)
            instance = view.instances_by_uuid([self.world.uuid(came)])[self.world.uuid(came)]
            assert (instance.state, instance.n_taints, instance.manifest_state) == (LIVE, 0, "complete")
            rows = view.instances_by_id(view.instances_same_as([instance.id])).values()
            assert self.wrong.isdisjoint(row.uuid for row in rows)
            assert (
                view.job_runs_by_id([instance.job_run_id])[instance.job_run_id].code == self.shop.specs[came].code_text
            )
            for read in view.instances_by_id(view.inputs_of([instance.id])).values():
                ref_row = view.ref_by_id(read.ref_id)
                assert ref_row.state is LIVE
                now = view.instances_by_id([ref_row.canonical_id or 0])[ref_row.canonical_id or 0]
                assert now.same_root == read.same_root

    def uuids(self, ref: str) -> set[str]:
        row = self.world.view.refs([Ref(ref)])[Ref(ref)]
        pointings = self.world.view.pointings([row.id])
        return {
            one.uuid for one in self.world.view.instances_by_id(i for _, _, i in pointings).values() if one.was_live
        }


@given(data=st.data())
def test_nothing_that_was_ever_doubted_comes_back(data: st.DataObject) -> None:
    """Edits, builds, failures, taints, untaints, compactions, erasures and removals in any order."""
    acts = Acts(data)
    often = [acts.edit, acts.edit, acts.build, acts.back] * 2
    others = [acts.rebuild, acts.fail, acts.taint, acts.untaint, acts.compact, acts.remove]
    for _ in range(data.draw(st.integers(1, 25))):
        with suppress(Refused, NotFound):
            data.draw(st.sampled_from(often + others))(data.draw(st.sampled_from(list(NEEDS))))
    assert acts.world.check() == []
