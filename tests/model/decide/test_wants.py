"""Wants as durable requests: what is recorded, what is refused, what opens again (rules 5, 6.10)."""

from __future__ import annotations

import pytest

from databuild_dagster.model import commands as c
from databuild_dagster.model.errors import (
    DuplicateRef,
    InvalidRef,
    InvalidRequest,
    NotFound,
    UnknownAsset,
    UnknownPartition,
    WantEnded,
)
from databuild_dagster.model.states import InstanceState, JobRunState, WantState
from databuild_dagster.model.wording import LAST_TIME
from tests.model.situations import bring
from tests.support.catalog import HERE

_I = InstanceState
DAY = 24 * 3600.0


@pytest.mark.parametrize(
    ("before", "expected", "due"),
    [
        (None, WantState.IDLE, ["a"]),
        (_I.LIVE, WantState.SUCCESSFUL, []),
        (_I.BUILDING, WantState.BUILDING, []),
        (_I.UPSTREAM_BUILDING, WantState.UPSTREAM_BUILDING, ["b"]),
        (_I.FAILED, WantState.FAILED, []),
        (_I.UPSTREAM_FAILED, WantState.UPSTREAM_FAILED, []),
    ],
)
def test_a_want_begins_in_the_state_that_its_ref_gives_it(world, before, expected, due):
    """Rules 4.5, 5.2, 5.4: only an operator opens a failed ref."""
    bring(world, before)

    want = world.want("a")

    assert (world.want_state(want), world.due()) == (expected, due)


def test_one_failed_ref_ends_a_want_of_several_but_not_the_others_of_its_request(world):
    """Rule 5.4: one want per ref, so that one bad day does not end the year's request."""
    outcome = world.handle(c.CreateWants(wants=(("days@1",), ("days@2",)), request_id="the-year"))

    world.fail("days@1")

    assert [world.want_state(want) for want in outcome.want_ids] == [WantState.FAILED, WantState.IDLE]
    assert [want.id for want in world.queries.wants.named("the-year")] == list(outcome.want_ids)


def test_the_fields_of_a_want_are_kept(world):
    """Rules 5.1, 5.5: the SLA counts from the data's timestamp if there is one."""
    command = c.CreateWants(
        wants=(("a", "days@2"),),
        request_id="request",
        source="schedule",
        source_id="nightly",
        comment="for the board",
        priority=7,
        ttl_seconds=100.0,
        sla_seconds=50.0,
        data_timestamp=1_000.0,
    )

    view = world.want_view(world.handle(command).want_ids[0])

    assert (view.request_id, view.source, view.source_id, view.comment) == (
        "request",
        "schedule",
        "nightly",
        "for the board",
    )
    assert set(view.refs) == {"a", "days@2"}
    assert (view.priority, view.deadline, view.created_at) == (7, 1_050.0, world.clock.now)
    assert view.expires_at == world.clock.now + 100.0


def test_a_want_lives_a_week_unless_it_says_otherwise(world):
    """Rule 5.5"""
    a_week = world.handle(c.CreateWants(wants=(("a",),))).want_ids[0]
    for_ever = world.want("b", ttl=None)

    assert world.want_view(a_week).expires_at == world.clock.now + 7 * DAY
    assert world.want_view(for_ever).expires_at is None


def test_a_ref_is_as_urgent_as_its_most_urgent_open_want(world):
    """Rules 5.8, 11.1: highest priority, then earliest deadline, then oldest first."""
    world.want("a")
    world.clock.turn(1)
    world.want("b", sla=60.0)
    world.want("c", priority=1)
    world.want("d", sla=30.0)
    world.want("e")
    assert world.due() == ["c", "d", "b", "a", "e"]

    urgent = world.want("e", priority=9)
    assert world.due() == ["e", "c", "d", "b", "a"]
    world.cancel_want(urgent)

    assert world.due() == ["c", "d", "b", "a", "e"]


# Reopening (rule 5.3).


@pytest.mark.parametrize(
    ("ttl", "seconds", "expected"),
    [(100.0, 99.0, WantState.IDLE), (100.0, 100.0, WantState.SUCCESSFUL), (None, 1000 * DAY, WantState.IDLE)],
)
def test_a_taint_within_its_ttl_reopens_a_successful_want(world, ttl, seconds, expected):
    """Rules 5.3, 5.5: strictly before created_at + ttl."""
    want = world.want("a", "b", ttl=ttl)
    world.live("a", "b")

    world.clock.turn(seconds)
    world.taint("a")

    assert world.want_state(want) is expected
    assert world.due() == (["a"] if expected is WantState.IDLE else [])


# Refused (rule 5.7): nothing is recorded.


@pytest.mark.parametrize(
    ("wants", "error", "says"),
    [
        ([["nowhere"]], UnknownAsset, "No code location has registered an asset 'nowhere'"),
        ([["day@1"]], UnknownAsset, "Did you mean days"),
        ([["days@9"]], UnknownPartition, "'9' is not one of 1, 2, 3"),
        ([["days"]], UnknownPartition, "is not one of"),
        ([["a@1"]], UnknownPartition, "is not one of"),
        ([["a", "a"]], DuplicateRef, "a is named twice"),
        ([["a"], ["b"], ["a"]], DuplicateRef, "a is named twice"),
        ([["a", ""]], InvalidRef, "empty"),
        ([["a\n"]], InvalidRef, "control character"),
        ([], InvalidRequest, "names no ref"),
        ([["a"], []], InvalidRequest, "names no ref"),
        ([["a"], ["days@2"], ["days@9"]], UnknownPartition, "days@9"),
    ],
)
def test_a_bad_want_is_refused_and_nothing_of_its_request_is_recorded(world, wants, error, says):
    """Rules 3.5, 5.7"""
    before = world.seq

    with pytest.raises(error, match=says):
        world.handle(c.CreateWants(wants=tuple(map(tuple, wants))))

    assert world.seq == before


@pytest.mark.parametrize(
    "wrong",
    [
        {"ttl_seconds": 0.0},
        {"ttl_seconds": -1.0},
        {"ttl_seconds": float("nan")},
        {"ttl_seconds": float("inf")},
        {"sla_seconds": 0.0},
        {"sla_seconds": float("nan")},
        {"data_timestamp": float("nan"), "sla_seconds": 1.0},
        {"data_timestamp": float("inf")},
        {"data_timestamp": 1e12},
        {"data_timestamp": -1e12, "sla_seconds": 1.0},
        {"ttl_seconds": 9_999_999 * 86_400.0},
        {"ttl_seconds": 99_999_999_999_999 * 86_400.0},
        {"sla_seconds": 9_999_999 * 86_400.0},
        {"sla_seconds": 10.0, "data_timestamp": LAST_TIME},
        {"priority": float("nan")},
        {"priority": 2**31},
        {"priority": -(2**63) - 1},
    ],
    ids=str,
)
def test_numbers_that_mean_nothing_are_refused(world, wrong):
    """Rule 3.5"""
    before = world.seq

    with pytest.raises(InvalidRequest, match=next(iter(wrong))):
        world.handle(c.CreateWants(wants=(("a",),), **wrong))

    assert world.seq == before


@pytest.mark.parametrize("what", ["ttl_seconds", "sla_seconds"])
def test_the_last_second_of_the_year_9999_is_a_time_like_any_other(world, what):
    """Rules 3.5, 5.5"""
    outcome = world.handle(c.CreateWants(wants=(("a",),), **{what: LAST_TIME - world.clock.now}))

    view = world.want_view(outcome.want_ids[0])
    assert (view.expires_at if what == "ttl_seconds" else view.deadline) == LAST_TIME


def test_what_was_far_off_is_as_far_off_again_after_a_retry_and_still_has_a_date(world):
    """Rules 5.5, 6.6: the clock has gone on since the want was recorded."""
    far = LAST_TIME - world.clock.now
    world.handle(c.CreateWants(wants=(("a",),), ttl_seconds=far, sla_seconds=far))
    world.fail("a")
    world.clock.turn(60)

    again = world.handle(c.RetryRefs(refs=("a",))).want_ids[0]

    assert (world.want_view(again).expires_at, world.want_view(again).deadline) == (LAST_TIME, LAST_TIME)


def test_a_dataset_that_its_location_no_longer_has_cannot_be_wanted(world):
    """Rule 5.7"""
    rest = tuple(spec for spec in world.specs if spec.asset != "a")
    world.handle(c.RegisterDatasets(location=HERE, datasets=rest))

    with pytest.raises(UnknownAsset, match="'a'"):
        world.want("a")


# Canceling (rule 6.10).


def test_a_running_job_run_goes_on_unless_it_is_terminated(world):
    """Rule 6.10"""
    first = world.want("a")
    world.start("a")
    world.cancel_want(first)
    assert world.state("a") is InstanceState.BUILDING

    second = world.want("a")
    world.cancel_want(second, terminate=True)

    assert world.state("a") is InstanceState.UP_FOR_RETRY


@pytest.mark.parametrize("running", [False, True])
def test_a_build_that_a_waiting_ref_misses_is_kept_when_its_own_want_is_canceled(world, running):
    """Rule 6.10: the waiting ref has reused the want; a derivative want takes its place."""
    theirs = world.want("c")
    world.want("a")
    world.miss("a", "c")
    (world.start if running else world.buffer)("c")
    job_run = world.canonical("c").job_run

    world.cancel_want(theirs, terminate=True)

    assert world.queries.job_runs.get(job_run).state is (JobRunState.RUNNING if running else JobRunState.QUEUED)
    assert len(world.derivative_wants("c")) == 1


def test_a_request_is_canceled_by_its_id_as_far_as_it_is_open(world):
    """Rule 5.4"""
    outcome = world.handle(c.CreateWants(wants=(("a",), ("b",)), request_id="both"))
    world.succeed("a")

    world.cancel_want("both")

    assert [world.want_state(want) for want in outcome.want_ids] == [WantState.SUCCESSFUL, WantState.CANCELED]


def test_canceling_what_ended_or_never_was_is_refused(world):
    """Rule 3.5"""
    want = world.want("a")
    world.cancel_want(want)
    before = world.seq

    with pytest.raises(WantEnded, match="Canceled"):
        world.cancel_want(want)
    with pytest.raises(NotFound, match="no-such-want"):
        world.cancel_want("no-such-want")
    with pytest.raises(InvalidRequest):
        world.cancel_want()

    assert world.seq == before


@pytest.mark.parametrize(
    ("keep_wants", "expected", "due"), [(False, WantState.CANCELED, []), (True, WantState.IDLE, ["a"])]
)
def test_a_person_who_cancels_a_job_run_takes_back_its_wants_or_keeps_them(world, keep_wants, expected, due):
    """Rule 6.10: otherwise it would be retried at once; `--retry` keeps them."""
    want = world.want("a")
    world.start("a")

    world.cancel("a", keep_wants=keep_wants)

    assert world.want_state(want) is expected
    assert world.state("a") is InstanceState.UP_FOR_RETRY
    assert world.due() == due
