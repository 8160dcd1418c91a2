"""Stories of trust: taints that go downstream, going back to an earlier instance, and trying again (rules 7.3, 7.4, 6.6)."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from databuild_dagster.model import commands as c
from databuild_dagster.model.errors import (
    AlreadyCanonical,
    BeingBuilt,
    CannotRevert,
    InvalidRequest,
    NotFound,
    NothingToRetry,
    NothingToUntaint,
)
from databuild_dagster.model.events import OutputFact
from databuild_dagster.model.states import InstanceState, WantState
from tests.support.catalog import dataset
from tests.support.model_world import ModelWorld
from tests.support.world import COMPLETE

LIVE, TAINTED, FAILED = InstanceState.LIVE, InstanceState.TAINTED, InstanceState.FAILED
UP_FOR_RETRY, BUILDING = InstanceState.UP_FOR_RETRY, InstanceState.BUILDING


@pytest.fixture
def world(make_world):
    return make_world(*(dataset(name) for name in "abcdef"))


def taint(world, *refs, uuids=(), downstream=True):
    outcome = world.handle(c.TaintPartitions(refs=refs, uuids=uuids, reason="wrong", downstream=downstream))
    return outcome.taint_id


def chain(world):
    """`b` from `a`, `c` from `b`; `d` from nothing."""
    world.live("a", "d")
    world.succeed("b", inputs=["a"])
    world.succeed("c", inputs=["b"])


# Downstream


def test_who_finishes_late_from_tainted_data_is_tainted_by_the_same_taint(world):
    """Rule 7.3: live and tainted in one transaction."""
    read = began_to_read(world, "a")
    want = world.want("b")
    taint_id = taint(world, "a")

    finish(world, read)

    assert world.state("b") is TAINTED
    assert [item.taint_id for item in world.queries.instances.taints_of(world.uuid("b"))] == [taint_id]
    assert world.want_state(want) is WantState.IDLE, "it asks for good data, and is open again"


def began_to_read(world, ref):
    """A job run of `b` that has begun while readers see this instance of another ref; what it reads."""
    world.live(ref)
    world.job_run("b")
    return {ref: world.uuid(ref)}


def finish(world, read):
    """The job run of `b` succeeds with what it read when it began."""
    output = OutputFact(ref="b", inputs=read, code_version="1", manifest=COMPLETE)
    world.handle(c.SucceedJobRuns(runs=(c.RunSuccess(world.job_run("b"), (output,)),)))


@pytest.mark.parametrize(("uuid", "error"), [("unknown", NotFound), ("failed", InvalidRequest)])
def test_only_an_instance_that_was_live_can_be_named(world, uuid, error):
    """Rule 7.3"""
    world.fail("a")
    before = world.seq

    with pytest.raises(error):
        taint(world, uuids=(world.uuid("a") if uuid == "failed" else uuid,))

    assert world.seq == before


def test_a_downstream_taint_that_a_running_build_may_inherit_is_taken_back(world):
    """Rules 7.1, 7.3: the build began while readers saw the tainted instance."""
    read = began_to_read(world, "a")
    world.taint("a")
    world.succeed("a")
    taint_id = taint(world, uuids=(read["a"],))

    world.untaint(taint_id)
    finish(world, read)

    assert world.state("b") is LIVE


def test_a_downstream_taint_of_an_instance_that_was_never_live_is_not_taken_back(world):
    """Rule 7.1: a running build cannot have read it."""
    world.fail("a")
    world.job_run("e")
    taint_id = world.handle(c.TaintPartitions(refs=("a",), reason="its file is there", downstream=True)).taint_id

    with pytest.raises(NothingToUntaint):
        world.untaint(taint_id)


# Reverting


def test_readers_see_the_earlier_instance_again_and_the_log_has_the_one_between(world):
    """Rules 7.4, 3.2"""
    first = world.succeed("a")
    world.taint("a")
    second = world.succeed("a")

    world.handle(c.RevertCanonical(ref="a", uuid=first))

    assert (world.state("a"), world.uuid("a")) == (LIVE, first)
    assert [instance.uuid for instance in world.queries.instances.history("a")] == [first, second]
    world.taint("a")
    third = world.succeed("a")
    assert world.queries.instances.get(third) is not None


def test_reverting_to_what_was_tainted_when_it_was_replaced_finds_it_live(world):
    """Rule 7.4: the taint was taken back while another instance stood in its place."""
    first = world.succeed("a")
    world.live("b")
    taint_id = world.taint("a", "b")
    world.live("a")
    world.untaint(taint_id)

    world.handle(c.RevertCanonical(ref="a", uuid=first))

    assert (world.state("a"), world.uuid("a")) == (LIVE, first)


def test_what_was_built_from_what_a_downstream_taint_covers_needs_force(world):
    """Rule 7.4"""
    chain(world)
    first, spoilt = world.uuid("b"), world.uuid("a")
    taint(world, "a")
    world.live("a")
    world.succeed("b", inputs=["a"])
    before = world.seq

    with pytest.raises(CannotRevert, match=f"built from instance {spoilt}.*`force`"):
        world.handle(c.RevertCanonical(ref="b", uuid=first))

    assert world.seq == before


def test_a_revert_is_refused_while_a_job_run_holds_the_lease_naming_it(world):
    """Rule 7.4"""
    first = world.succeed("a")
    world.taint("a")
    job_run = world.job_run("a")

    with pytest.raises(BeingBuilt, match=job_run):
        world.handle(c.RevertCanonical(ref="a", uuid=first))


@pytest.mark.parametrize("case", ["never live", "another ref's", "unknown", "canonical"])
def test_a_revert_to_an_unreadable_instance_is_refused(world, case):
    """Rule 7.4"""
    world.fail("a")
    failed = world.uuid("a")
    world.taint("a")
    world.live("a", "b")
    uuid = {"never live": failed, "another ref's": world.uuid("b"), "unknown": "unknown", "canonical": world.uuid("a")}
    before = world.seq

    with pytest.raises((CannotRevert, NotFound)):
        world.handle(c.RevertCanonical(ref="a", uuid=uuid[case]))

    assert world.seq == before


# Trying again


def test_a_retry_opens_the_first_cause_and_wants_again_all_that_failed_of_it(world):
    """Rule 6.6"""
    wants = {ref: world.want(ref, priority=priority) for ref, priority in (("a", 0), ("b", 2), ("d", 0))}
    world.miss("b", "a")
    world.fail("a")
    world.live("d")
    assert world.want_state(wants["b"]) is WantState.UPSTREAM_FAILED

    outcome = world.handle(c.RetryRefs(refs=("a",)))

    assert world.states("a", "b") == [TAINTED, UP_FOR_RETRY]
    again = [want for want in world.queries.wants.named(outcome.request_id or "") if want.source == "user"]
    assert {(want.refs, want.priority) for want in again} == {(("a",), 0), (("b",), 2)}
    assert set(world.due()) == {"a", "b"}


def test_a_retry_without_wants_of_before_wants_what_was_named(world):
    """Rule 6.6"""
    want = world.want("a", ttl=60)
    world.fail("a")
    world.clock.turn(3600)
    assert world.want_state(want) is WantState.FAILED

    world.handle(c.RetryRefs(refs=("a",)))

    assert [want.refs for want in world.open_wants("a")] == [("a",)]


def test_a_retry_keeps_priority_and_sla_and_delegates_to_what_was_live_all_along(world):
    """Rules 6.6, 8.1"""
    world.live("b")
    world.want("a", "b", priority=3, sla=60)
    world.want("a", priority=3, sla=60)
    world.fail("a")
    before = world.seq

    outcome = world.handle(c.RetryRefs(refs=("a",)))

    assert world.log(before) == ["TaintCreated", "PartitionDelegated", "WantCreated"]
    again = world.queries.wants.named(outcome.request_id or "")
    assert {(tuple(sorted(want.refs)), want.priority) for want in again} == {(("a",), 3), (("a", "b"), 3)}
    assert {want.deadline for want in again} == {world.clock.now + 60}


@pytest.mark.parametrize("ref", ["a", "b", "c"])
def test_what_has_not_failed_is_not_retried(world, ref):
    """Rule 6.6"""
    world.live("a")
    world.start("b")
    before = world.seq

    with pytest.raises(NothingToRetry):
        world.handle(c.RetryRefs(refs=(ref,)))

    assert world.seq == before


# For every lineage


@given(data=st.data())
def test_a_downstream_taint_covers_what_was_built_from_it(data):
    """Rules 7.3, 3.4: against a walk of our own."""
    world = ModelWorld([dataset(name) for name in "abcdef"])
    built: dict[str, tuple[str, dict[str, str]]] = {}
    for _ in range(data.draw(st.integers(3, 12))):
        ref = data.draw(st.sampled_from("abcdef"))
        if world.state(ref) is LIVE:
            world.taint(ref)
        inputs = [
            item for item in data.draw(st.sets(st.sampled_from("abcdef"), max_size=3)) if world.state(item) is LIVE
        ]
        read = {item: world.uuid(item) for item in inputs}
        built[world.succeed(ref, inputs=inputs)] = (ref, read)
    start = data.draw(st.sampled_from(sorted(built)))
    canonical = {ref: world.canonical(ref) for ref in "abcdef"}

    taint(world, uuids=(start,))

    covered = {start}
    for uuid, (_, read) in built.items():  # in the order of building, so once through is all
        if covered & set(read.values()):
            covered.add(uuid)
    for ref, before in canonical.items():
        expected = TAINTED if before.uuid in covered else before.state
        assert world.state(ref) is expected
    assert world.check() == []
    world.close()


def test_a_revert_to_the_canonical_instance_is_refused_and_names_untaint(world):
    """Rule 7.4"""
    uuid = world.succeed("a")
    world.taint("a")
    before = world.seq

    with pytest.raises(AlreadyCanonical) as refused:
        world.handle(c.RevertCanonical(ref="a", uuid=uuid))

    assert "`databuild untaint" in refused.value.advice
    assert (world.seq, world.state("a")) == (before, TAINTED)
