"""Whether a ref that a Dagster run waits for stands still, and for lack of which launches (rule 8.3; decision 0023)."""

from __future__ import annotations

import pytest

from databuild_dagster.engine.why.awaited import launches_not_begun
from tests.support.catalog import dataset

pytestmark = pytest.mark.usefixtures("database")


@pytest.fixture
def world(make_world):
    """`c` is built from `b`, which is built from `a`."""
    return make_world(dataset("a"), dataset("b", "a"), dataset("c", "b"), dataset("other"))


@pytest.fixture
def waits(world):
    """`c` waits for `b`, which waits for `a`."""
    world.miss("c", "b")
    world.miss("b", "a")
    return world


def not_begun(world, *refs):
    return launches_not_begun(world.engine, refs)


def test_the_launch_of_what_it_all_waits_for_in_the_end_has_not_begun(waits):
    launch = waits.buffer("a")

    assert not_begun(waits, "c") == {launch: ("a",)}


def test_what_is_being_built_does_not_stand_still_nor_does_what_waits_for_it(waits):
    waits.start("a")

    assert not_begun(waits, "c") == {}


def test_nothing_stands_still_while_a_ref_that_is_waited_for_is_being_built(waits):
    waits.buffer("a")
    waits.start("other")

    assert not_begun(waits, "c", "other") == {}


def test_a_launch_that_has_not_begun_is_one_itself_if_it_is_waited_for(world):
    launch = world.buffer("other")

    assert not_begun(world, "other") == {launch: ("other",)}


@pytest.mark.parametrize("how", ["live", "failed"])
def test_who_is_about_to_hear_how_it_ended_does_not_wait_for_a_launch(waits, how):
    waits.buffer("a")
    waits.succeed("other") if how == "live" else waits.fail("other")

    assert not_begun(waits, "c", "other") == {}


def test_what_is_not_launched_yet_waits_for_the_launches_before_it(waits):
    """So many are out at once, and no more are made while none of these begins."""
    assert not_begun(waits, "c") == {}

    before = waits.buffer("other")

    assert not_begun(waits, "c") == {before: ("a",)}


def test_what_backs_off_needs_no_slot_yet(waits):
    waits.fail("a", kind="transient")
    before = waits.buffer("other")
    assert not_begun(waits, "c") == {}

    waits.clock.now = waits.canonical("a").retry_at

    assert not_begun(waits, "c") == {before: ("a",)}
