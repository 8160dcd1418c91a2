"""An earlier instance comes back in place of a build, if its code and inputs are equal and nobody doubted it (rule 4.9)."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from databuild_dagster.model import commands as c
from databuild_dagster.model.datasets import CodeSpec
from databuild_dagster.model.decide.returning import place_in_sample
from databuild_dagster.model.errors import NotFound, Refused
from databuild_dagster.model.events import Birth
from databuild_dagster.model.refs import Ref
from databuild_dagster.model.states import InstanceState, WantState
from tests.support.edited_code import NEEDS, Shop, spec
from tests.support.model_world import ModelWorld
from tests.support.world import COMPLETE

LIVE, TAINTED = InstanceState.LIVE, InstanceState.TAINTED


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
    shop.edited_and_edited_back("b", "c")

    assert shop.back("c", "b") == ["b", "c"]

    assert shop.world.states("b", "c") == [LIVE, LIVE]


def test_a_ref_of_the_sample_is_built_whoever_asks_and_its_taint_says_why(shop: Shop) -> None:
    first = shop.edited_and_edited_back("b")
    replaced = shop.world.uuid("b")

    back, (taint,) = shop.sampled("b", verify=1.0)

    assert (back, taint.uuids, taint.reason) == (
        [],
        (replaced,),
        f"--verify compares a second build with instance {first}",
    )
    assert shop.back("b") == []
    assert shop.build("b") not in (first, replaced)
    assert (shop.world.state("b"), shop.world.check()) == (LIVE, [])


def test_what_needs_a_ref_of_the_sample_waits_for_its_second_build(shop: Shop) -> None:
    shop.edited_and_edited_back("b", "c")
    replaced = shop.world.uuid("b")

    back, taints = shop.sampled("b", "c", verify=1.0)

    assert (back, [taint.uuids for taint in taints]) == ([], [(replaced,)])


def test_a_sample_that_must_not_be_empty_has_a_ref_that_nothing_else_needs(shop: Shop) -> None:
    shop.edited_and_edited_back("b", "c")
    replaced = shop.world.uuid("c")

    back, taints = shop.sampled("b", "c", verify=1e-9, at_least_one=True)

    assert (back, [taint.uuids for taint in taints]) == (["b"], [(replaced,)])


def test_a_second_build_with_the_rows_of_the_instance_between_cuts_off_as_any_build(make_world) -> None:
    """Rule 4.8"""
    shop = Shop(make_world(*(spec(name, "old") for name in NEEDS)), content_hash="x:1")
    shop.edit("b", "new")
    shop.fresh("b")
    shop.build("b", content_hash="x:1")
    shop.edit("b", "old")
    shop.fresh("b")
    shop.sampled("b", verify=1.0)

    shop.build("b", content_hash="x:1")

    assert not shop.world.queries.instances.stale([shop.world.uuid("c")])


@pytest.mark.parametrize("part", [0.01, 0.5, 0.9])
def test_a_part_of_all_instances_is_in_the_sample(part: float) -> None:
    """By a computation, so that each command finds the same."""
    places = [place_in_sample(f"0193b3c4-{number:04x}") for number in range(10_000)]

    assert sum(place < part for place in places) == pytest.approx(10_000 * part, rel=0.3)


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
        part = self.draw(st.sampled_from([0.0, 0.0, 0.5]))
        for came in self.shop.sampled(*self.draw(st.permutations(list(NEEDS))), verify=part)[0]:
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
