"""A build with the rows of the last live instance makes nothing stale, and hides no taint (rule 4.8)."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from databuild_dagster.model import commands as c
from databuild_dagster.model.errors import NotFound, Refused
from databuild_dagster.model.events import JobRunSucceeded, ManifestFact, OutputFact, RunSuccess
from databuild_dagster.model.states import InstanceState
from databuild_dagster.store.queries.canonical import Canonical
from tests.support.catalog import dataset
from tests.support.model_world import ModelWorld
from tests.support.world import COMPLETE, World

LIVE, TAINTED = InstanceState.LIVE, InstanceState.TAINTED


@pytest.fixture
def world(make_world) -> World:
    return make_world(*(dataset(name) for name in "abcd"), dataset("left", job="pair"), dataset("right", job="pair"))


def rows(content_hash: str | None) -> ManifestFact:
    return replace(COMPLETE, content_hash=content_hash)


def build(world: World, ref: str, content_hash: str | None = "x:1", inputs: Iterable[str] = ()) -> str:
    return world.succeed(ref, inputs=inputs, manifest=rows(content_hash))


def rebuild(world: World, ref: str, content_hash: str | None = "x:1", inputs: Iterable[str] = ()) -> str:
    world.taint(ref)
    return build(world, ref, content_hash, inputs)


def same_as(world: World) -> list[str | None]:
    """Of the outputs of the last success, the instance with equal rows."""
    fact = list(world.queries.events.named(("JobRunSucceeded",), 0, world.seq))[-1].fact
    assert isinstance(fact, JobRunSucceeded)
    return [output.same_data_as for run in fact.runs for output in run.outputs]


def taint_downstream(world: World, *refs: str, uuids: tuple[str, ...] = ()) -> str:
    taint_id = world.handle(
        c.TaintPartitions(refs=refs, uuids=uuids, reason="wrong currency", downstream=True)
    ).taint_id
    assert taint_id is not None
    return taint_id


def is_stale(world: World, ref: str) -> bool:
    return bool(world.queries.instances.stale([world.uuid(ref)]))


# Equal rows


def test_a_consumer_of_rows_that_are_built_again_equally_is_not_stale(world: World) -> None:
    first = build(world, "a")
    build(world, "b", inputs=["a"])
    world.taint("a")
    while_tainted = is_stale(world, "b")

    build(world, "a")

    assert (while_tainted, same_as(world), is_stale(world, "b")) == (True, [first], False)


def test_equal_rows_are_followed_over_many_builds_and_failures(world: World) -> None:
    first = build(world, "a")
    build(world, "b", inputs=["a"])
    second = rebuild(world, "a")
    world.taint("a")
    world.fail("a")

    rebuild(world, "a")

    assert (same_as(world), is_stale(world, "b")) == ([second], False)
    assert first != second


@pytest.mark.parametrize(
    ("before", "after"),
    [("x:1", "x:2"), ("x:1", "y:1"), ("x:1", None), (None, "x:1"), (None, None)],
    ids=["other rows", "another implementation", "unknown after", "unknown before", "both unknown"],
)
def test_unknown_and_other_hashes_equal_nothing(world: World, before: str | None, after: str | None) -> None:
    build(world, "a", before)
    build(world, "b", inputs=["a"])

    rebuild(world, "a", after)

    assert (same_as(world), is_stale(world, "b")) == ([None], True)


def test_rows_that_come_back_after_others_are_not_those_of_the_last_live_instance(world: World) -> None:
    build(world, "a", "x:1")
    build(world, "b", inputs=["a"])
    rebuild(world, "a", "x:2")

    rebuild(world, "a", "x:1")

    assert (same_as(world), is_stale(world, "b")) == ([None], True)


def test_after_a_revert_the_chosen_instance_is_the_last_live_one(world: World) -> None:
    first = build(world, "a", "x:1")
    rebuild(world, "a", "x:2")
    world.handle(c.RevertCanonical(ref="a", uuid=first))

    rebuild(world, "a", "x:1")

    assert same_as(world) == [first]


def test_each_output_of_a_job_run_is_compared_by_itself(world: World) -> None:
    def both(left: str, right: str) -> None:
        world.start("left", "right", together=True)
        outputs = (OutputFact(ref="left", manifest=rows(left)), OutputFact(ref="right", manifest=rows(right)))
        world.handle(c.SucceedJobRuns(runs=(RunSuccess(world.job_run("left"), outputs),)))

    both("x:1", "x:1")
    before = world.uuid("left")
    world.taint("left", "right")
    both("x:1", "x:2")

    assert same_as(world) == [before, None]


def test_the_caller_cannot_name_an_instance_with_equal_rows(world: World) -> None:
    first = build(world, "a", None)
    world.taint("a")
    output = OutputFact(ref="a", manifest=COMPLETE, same_data_as=first)

    world.handle(c.SucceedJobRuns(runs=(RunSuccess(world.job_run("a"), (output,)),)))

    assert same_as(world) == [None]


def test_compacted_rows_keep_their_hash_and_erased_ones_have_none(world: World) -> None:
    build(world, "a")
    build(world, "b", inputs=["a"])
    for erased, expected in ((False, True), (True, False)):
        uuid = world.uuid("a")
        world.handle(c.ReplaceFiles(ref="a", uuid=uuid, job_run_id=world.ids(), manifest=rows("x:9"), erased=erased))
        rebuild(world, "a")

        assert (same_as(world) != [None]) is expected
        assert is_stale(world, "b") is not expected


def test_data_that_was_removed_has_no_equal(world: World) -> None:
    first = build(world, "a")
    world.taint("a")
    world.handle(c.RemoveManifests(uuids=(first,), reason="gc", tainted=True))

    build(world, "a")

    assert same_as(world) == [None]


# Taints


def test_what_a_downstream_taint_covers_is_built_again_whatever_its_rows(world: World) -> None:
    """Over two levels of equal rows."""
    build(world, "a")
    build(world, "b", inputs=["a"])
    build(world, "c", inputs=["b"])
    taint_downstream(world, "a")

    build(world, "a")
    states = [world.states("a", "b", "c")]
    build(world, "b", inputs=["a"])
    states.append(world.states("a", "b", "c"))

    assert states == [[LIVE, TAINTED, TAINTED], [LIVE, LIVE, TAINTED]]
    assert same_as(world) == [None]


def test_a_downstream_taint_reaches_what_was_built_from_equal_rows_at_every_level(world: World) -> None:
    build(world, "a", "x:1")
    first = build(world, "b", inputs=["a"])
    build(world, "c", inputs=["b"])
    rebuild(world, "a", "x:2")
    rebuild(world, "b", inputs=["a"])
    assert (same_as(world), is_stale(world, "c")) == ([first], False)

    taint_downstream(world, "a")

    assert world.states("b", "c") == [TAINTED, TAINTED]


def test_a_taint_of_the_earlier_instance_covers_equal_rows_of_the_later_one(world: World) -> None:
    first = build(world, "a")
    build(world, "b", inputs=["a"])
    rebuild(world, "a")

    taint_downstream(world, uuids=(first,))

    assert world.states("a", "b") == [TAINTED, TAINTED]


def test_a_taint_while_the_rows_are_built_again_ends_their_equality(world: World) -> None:
    first = build(world, "a")
    build(world, "b", inputs=["a"])
    world.taint("a")
    world.job_run("a")
    taint_downstream(world, uuids=(first,))

    build(world, "a")

    assert (same_as(world), world.states("a", "b")) == ([None], [LIVE, TAINTED])


def test_rows_of_a_tainted_input_equal_nothing(world: World) -> None:
    """The taint covers what was read, and not the last live instance."""
    build(world, "a", "x:1")
    build(world, "b", inputs=["a"])
    rebuild(world, "a", "x:2")
    world.taint("b")
    job_run, read = world.job_run("b"), {"a": world.uuid("a")}
    taint_downstream(world, "a")

    output = OutputFact(ref="b", inputs=read, manifest=rows("x:1"))
    world.handle(c.SucceedJobRuns(runs=(RunSuccess(job_run, (output,)),)))

    assert (same_as(world), world.state("b")) == ([None], TAINTED)


def test_a_taint_of_the_later_instance_makes_its_consumers_stale(world: World) -> None:
    build(world, "a")
    build(world, "b", inputs=["a"])
    rebuild(world, "a")

    world.taint("a")

    assert is_stale(world, "b")


REFS = "abc"


class Oracle:
    """What is known without the store: the rows of each instance, what it read, and which instances have its rows."""

    def __init__(self) -> None:
        self.hash_of: dict[str, str | None] = {}
        self.read_by: dict[str, set[str]] = {}
        self.ref_of: dict[str, str] = {}
        #: Equal for instances with rows that are known to be equal.
        self.rows_of: dict[str, str] = {}

    def built(self, ref: str, uuid: str, content_hash: str | None, read: set[str], same: str | None) -> None:
        self.hash_of[uuid], self.read_by[uuid], self.ref_of[uuid] = content_hash, read, ref
        self.rows_of[uuid] = self.rows_of[same] if same else uuid

    def downstream_of(self, uuids: Iterable[str]) -> set[str]:
        """The instances with rows of `uuids`, or built from such rows, directly or not."""
        found: set[str] = set()
        level = set(uuids)
        while level - found:
            found |= level
            rows = {self.rows_of[uuid] for uuid in found}
            level = {uuid for uuid, its_rows in self.rows_of.items() if its_rows in rows or self.read_by[uuid] & found}
        return found


class Acts:
    """A world of three refs in a chain, in which anything happens in any order."""

    def __init__(self, data: st.DataObject) -> None:
        self.draw = data.draw
        self.world = ModelWorld([dataset(name) for name in REFS])
        self.oracle = Oracle()
        self.taints: list[str] = []
        for ref in REFS:
            self.build(ref)

    def build(self, ref: str) -> set[str]:
        if self.world.state(ref) is LIVE:
            self.world.taint(ref)
        inputs = [name for name in REFS if name < ref and self.world.state(name) is LIVE]
        content_hash = self.draw(st.sampled_from(["x:1", "x:1", "x:2", None]))
        read = {self.world.uuid(name) for name in inputs}
        uuid = build(self.world, ref, content_hash, inputs)
        (same,) = same_as(self.world)
        if same is not None:
            assert content_hash is not None
            assert self.oracle.hash_of[same] == content_hash
        self.oracle.built(ref, uuid, content_hash, read, same)
        return {ref}

    def taint(self, ref: str) -> set[str]:
        self.world.taint(ref)
        return {ref}

    def taint_downstream(self, ref: str) -> set[str]:
        uuid = self.draw(st.sampled_from(sorted(self.oracle.ref_of)))
        before = {name: self.world.canonical(name) for name in REFS}
        self.taints.append(taint_downstream(self.world, uuids=(uuid,)))
        covered = self.oracle.downstream_of([uuid])
        for name, seen in before.items():
            assert self.world.state(name) is (TAINTED if seen.uuid in covered else seen.state)
        return set(REFS)

    def untaint(self, ref: str) -> set[str]:
        self.world.untaint(self.draw(st.sampled_from([*self.taints, "none"])))
        return set(REFS)

    def revert(self, ref: str) -> set[str]:
        uuids = [uuid for uuid, its_ref in self.oracle.ref_of.items() if its_ref == ref]
        self.world.handle(c.RevertCanonical(ref=ref, uuid=self.draw(st.sampled_from(uuids))))
        return {ref}

    def compact(self, ref: str) -> set[str]:
        seen = self.world.uuid(ref)
        erased = self.draw(st.booleans())
        self.world.handle(
            c.ReplaceFiles(ref=ref, uuid=seen, job_run_id=self.world.ids(), manifest=COMPLETE, erased=erased)
        )
        content_hash = None if erased else self.oracle.hash_of[seen]
        self.oracle.built(ref, self.world.uuid(ref), content_hash, self.oracle.read_by[seen], seen)
        return set()

    def check(self, before: dict[str, Canonical], touched: set[str]) -> None:
        """Nothing becomes live by itself, and what is not stale was built from rows that readers see live."""
        for ref, seen in before.items():
            if ref not in touched and seen.state is TAINTED:
                assert (self.world.state(ref), self.world.uuid(ref)) == (TAINTED, seen.uuid)
            uuid = self.world.uuid(ref)
            if self.world.state(ref) is LIVE and not is_stale(self.world, ref):
                for read in self.oracle.read_by[uuid]:
                    now = self.world.canonical(self.oracle.ref_of[read])
                    assert now.state is LIVE
                    assert self.oracle.rows_of[now.uuid or ""] == self.oracle.rows_of[read]


@given(data=st.data())
def test_no_tainted_rows_are_live_again_without_a_build_or_a_person(data: st.DataObject) -> None:
    """Rules 4.8, 7: builds, taints, untaints, reverts, compactions and erasures in any order."""
    acts = Acts(data)
    choices = [acts.build, acts.build, acts.taint, acts.taint_downstream, acts.untaint, acts.revert, acts.compact]
    for _ in range(data.draw(st.integers(1, 20))):
        before = {ref: acts.world.canonical(ref) for ref in REFS}
        with suppress(Refused, NotFound):
            touched = data.draw(st.sampled_from(choices))(data.draw(st.sampled_from(REFS)))
            acts.check(before, touched)
    assert acts.world.check() == []
    acts.world.close()
