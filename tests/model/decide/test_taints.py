"""Saying that data is wrong, and taking that back (rules 7.1, 7.2)."""

from __future__ import annotations

import pytest

from databuild_dagster.model import commands as c
from databuild_dagster.model.errors import (
    BeingBuilt,
    DuplicateRef,
    InvalidRequest,
    NotFound,
    NothingToTaint,
    NothingToUntaint,
    UnknownAsset,
    WaitsForInputs,
)
from databuild_dagster.model.states import InstanceState
from tests.support.catalog import dataset

_I = InstanceState


def test_a_tainted_instance_stays_canonical_and_no_new_one_is_made(world):
    """Rule 7.1: readers see that it is tainted."""
    uuid = world.succeed("a")

    world.taint("a", reason="Rome has two airports")

    assert world.canonical("a").uuid == uuid
    assert world.state("a") is _I.TAINTED
    assert [taint.reason for taint in world.queries.instances.taints_of(uuid)] == ["Rome has two airports"]
    assert len(world.queries.instances.history("a")) == 1


@pytest.mark.parametrize("why", ["missing", "never heard of", "up for retry"])
def test_what_will_be_built_when_wanted_is_not_tainted(world, why):
    """Rule 7.1"""
    match why:
        case "missing":
            world.want("a")
        case "up for retry":
            world.fail("a", kind="transient")
    before = world.seq

    with pytest.raises(NothingToTaint, match="missing|UpForRetry"):
        world.taint("a")

    assert world.seq == before


@pytest.mark.parametrize("how", ["queued", "running"])
def test_what_is_being_built_is_not_tainted_and_the_holder_is_named(world, how):
    """Rule 7.1"""
    match how:
        case "queued":
            world.buffer("a")
        case "running":
            world.start("a")
    before = world.seq

    with pytest.raises(BeingBuilt, match=world.canonical("a").job_run):
        world.taint("a")

    assert world.seq == before


def test_a_taint_of_a_waiting_ref_names_the_wants_whose_end_ends_its_lease(make_world):
    """Rule 7.1: its job run has ended, so nothing of it can be canceled. A derivative want ends with the wants behind it."""
    world = make_world(dataset("a"), dataset("b", "a"), dataset("c", "b"))
    want = world.want("c")
    world.miss("c", "b")
    world.miss("b", "a")

    for act in (
        lambda: world.taint("b"),
        lambda: world.arrive("b", "file:///other"),
    ):
        with pytest.raises(WaitsForInputs) as refused:
            act()
        assert refused.value.facts == {"ref": "b", "job_run": world.canonical("b").job_run, "wants": want}
    assert f"`databuild want cancel {want}`" in refused.value.advice

    world.cancel_want(want)
    world.arrive("b", "file:///other")
    assert world.state("b") is InstanceState.LIVE


def test_a_list_is_tainted_as_a_whole_or_not_at_all(world):
    """Rule 7.1"""
    world.live("a")
    before = world.seq

    for refs, error in (
        (("a", "b"), NothingToTaint),
        (("a", "nowhere"), UnknownAsset),
        (("a", "a"), DuplicateRef),
        ((), InvalidRequest),
    ):
        with pytest.raises(error):
            world.taint(*refs)

    assert world.seq == before
    assert world.state("a") is _I.LIVE


def test_an_unregistered_dataset_cannot_be_tainted_and_the_refusal_says_where_to_look(world):
    """Rule 3.5: what is wrong, and what to do."""
    with pytest.raises(UnknownAsset) as unknown:
        world.taint("nowhere@1")
    with pytest.raises(UnknownAsset, match=r"an asset 'dayss'\. Did you mean days\?"):
        world.taint("dayss")

    assert str(unknown.value) == (
        "No code location has registered an asset 'nowhere'. There are a, b, c, d, days and 3 more."
    )


def test_a_taint_id_that_was_used_before_is_refused(world):
    """Rule 3.5"""
    world.live("a")
    taint_id = world.taint("a")
    before = world.seq

    with pytest.raises(InvalidRequest, match=taint_id):
        world.handle(c.TaintPartitions(refs=("a",), reason="again", taint_id=taint_id))

    assert world.seq == before


def test_a_failure_that_was_tainted_does_not_become_live(world):
    """Rule 7.1: it never was."""
    world.fail("a")
    taint = world.taint("a")
    before = world.seq

    with pytest.raises(NothingToUntaint, match="never live"):
        world.untaint(taint)

    assert world.seq == before
    assert world.state("a") is _I.TAINTED


def test_a_taint_of_what_was_replaced_is_not_taken_back_and_the_replacement_is_named(world):
    """Rule 7.1"""
    world.live("a")
    taint = world.taint("a")
    world.want("a")
    replacement = world.succeed("a")
    before = world.seq

    with pytest.raises(NothingToUntaint, match=replacement):
        world.untaint(taint)

    assert world.seq == before


def test_a_taint_is_taken_back_once(world):
    """Rule 3.5"""
    world.live("a")
    taint = world.taint("a")
    world.untaint(taint)

    with pytest.raises(NothingToUntaint, match="canceled already"):
        world.untaint(taint)
    with pytest.raises(NotFound, match="no-such-taint"):
        world.untaint("no-such-taint")
