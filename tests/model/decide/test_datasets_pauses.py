"""Paused refs are not launched, by any door, and nothing else changes for them (rule 6.13)."""

from __future__ import annotations

import pytest

from databuild_dagster.model import commands as c
from databuild_dagster.model.datasets import DatasetKind
from databuild_dagster.model.errors import (
    AlreadyPaused,
    DuplicateRef,
    InvalidRequest,
    NothingToPause,
    NotPaused,
    PausedAsAWhole,
    UnknownAsset,
    UnknownPartition,
)
from databuild_dagster.model.states import InstanceState, JobRunState, WantState
from tests.model.situations import bring
from tests.support.catalog import HERE, dataset

_I = InstanceState
DAYS = ["1", "2", "3"]


@pytest.fixture
def days(make_world):
    """One asset with partitions, one without, and one that nothing here builds."""
    return make_world(
        dataset("days", keys=DAYS), dataset("total", ("days", "all")), dataset("drop", kind=DatasetKind.SOURCE)
    )


def launched(world, ref):
    """Whether the orchestrator may launch the ref now."""
    return bool(world.handle(world.launch_of(ref)).events)


def test_a_paused_ref_is_not_due_and_its_want_stays_open(world):
    """Rule 6.13"""
    want = world.want("a", "b")

    world.pause("a")

    assert world.due() == ["b"]
    assert not launched(world, "a")
    assert world.want_state(want) is WantState.IDLE
    world.resume("a")
    assert sorted(world.due()) == ["a", "b"]
    assert launched(world, "a")


def test_a_pause_of_an_asset_names_partitions_that_no_event_has_named(days):
    """Rule 6.13: also those to come."""
    days.pause("days")

    days.want("days@1", "total")

    assert days.due() == ["total"]


def test_a_pause_with_an_end_ends_without_an_event(world):
    """Rule 6.13"""
    world.want("a")
    world.pause("a", until=world.clock.now + 60.0)
    seq = world.seq

    world.clock.turn(59.0)
    before = world.due()
    world.clock.turn(1.0)

    assert (before, world.due(), world.seq) == ([], ["a"], seq)
    assert launched(world, "a")
    assert world.check() == []


def test_a_running_job_run_continues_and_a_queued_one_ends(world):
    """Rule 6.13: what has been launched and not begun is not launched."""
    running, queued = world.want("a"), world.want("b")
    world.start("a")
    launch_id = world.buffer("b")

    world.pause("a", "b")

    assert world.states("a", "b") == [_I.BUILDING, _I.UP_FOR_RETRY]
    assert world.want_state(queued) is WantState.IDLE
    assert world.start_launch(launch_id).events == ()
    world.succeed("a")
    assert world.want_state(running) is WantState.SUCCESSFUL


@pytest.mark.parametrize("name", ["days@1", "days"])
def test_terminate_cancels_what_runs_and_keeps_its_want(days, name):
    """Rules 6.13, 6.10"""
    want = days.want("days@1")
    days.start("days@1")
    job_run = days.canonical("days@1").job_run

    days.pause(name, terminate=True)

    assert days.state("days@1") is _I.UP_FOR_RETRY
    assert days.want_state(want) is WantState.IDLE
    assert days.queries.job_runs.get(job_run).state is JobRunState.CANCELED
    assert days.queries.job_runs.get(job_run).error == "paused: its source is wrong"
    assert days.due() == []


def test_a_dagster_run_is_refused_with_the_reason_and_the_name(world):
    """Rules 6.13, 8.1: nothing is recorded of it."""
    world.pause("a", reason="Rome sends half of its rows")
    seq = world.seq

    claim = world.claim("a", "b").claim

    assert claim.refused == {"a": "a is paused by tester: Rome sends half of its rows"}
    assert list(claim.build) == ["b"]
    assert "a" not in [ref for want in world.queries.wants.named("run-by-hand") for ref in want.refs]
    assert world.claim("a", dagster_run_id="another").events == ()
    assert world.seq > seq


def test_a_dagster_run_joins_a_build_that_goes_on_and_reuses_what_is_live(world):
    """Rule 6.13"""
    world.start("a")
    world.live("b")
    world.pause("a", "b")

    claim = world.claim("a", "b").claim

    assert (list(claim.join), list(claim.reuse), claim.refused) == (["a"], ["b"], {})


@pytest.mark.parametrize("state", [_I.UPSTREAM_BUILDING, _I.UP_FOR_RETRY, _I.FAILED, _I.UPSTREAM_FAILED, _I.TAINTED])
def test_a_dagster_run_neither_builds_a_paused_ref_nor_waits_for_it(world, state):
    """Rule 6.13: it would wait until its time limit."""
    bring(world, state)
    world.pause("a")

    claim = world.claim("a").claim

    assert world.state("a") is state
    assert "paused by tester" in claim.refused["a"]


def test_a_pause_of_an_asset_and_one_of_a_partition_hold_until_both_have_ended(days):
    """Rule 6.13"""
    days.want("days@1")
    days.want("days@2")
    days.pause("days@1")
    days.pause("days", until=days.clock.now + 60.0)

    assert days.due() == []
    days.clock.turn(60.0)
    assert days.due() == ["days@2"]
    days.resume("days@1")
    assert days.due() == ["days@1", "days@2"]


def test_a_resume_of_an_asset_ends_the_pauses_of_its_partitions_too(days):
    """Rule 6.13"""
    days.want("days@1")
    days.pause("days")
    days.pause("days@1")

    (event,) = days.resume("days").events

    assert sorted(event.fact.refs) == ["days", "days@1"]
    assert days.due() == ["days@1"]


def test_a_partition_of_a_paused_asset_is_not_resumed_alone(days):
    """Rule 6.13"""
    days.pause("days")

    with pytest.raises(PausedAsAWhole, match=r"days@1 is paused with all of days, by tester.*`databuild resume days`"):
        days.resume("days@1")


@pytest.mark.parametrize(
    ("refs", "more", "error"),
    [
        ((), {}, InvalidRequest),
        (("day@1",), {}, UnknownAsset),
        (("day",), {}, UnknownAsset),
        (("days@4",), {}, UnknownPartition),
        (("total@1",), {}, UnknownPartition),
        (("drop",), {}, NothingToPause),
        (("days@1", "days@1"), {}, DuplicateRef),
        (("days@1",), {"reason": "  "}, InvalidRequest),
        (("days@1",), {"until": 0.0}, InvalidRequest),
        (("days@1",), {"until": float("inf")}, InvalidRequest),
        (("days@1", "days@2"), {}, AlreadyPaused),
    ],
)
def test_a_pause_is_refused_as_a_whole(days, refs, more, error):
    """Rule 6.13: nothing is recorded."""
    days.pause("days@2")
    seq = days.seq

    with pytest.raises(error):
        days.pause(*refs, **more)

    assert days.seq == seq


def test_a_second_pause_quotes_the_first_one_s_reason_apart_from_the_advice(days):
    """Rule 6.13"""
    days.pause("days@2", reason="sent again on Monday")

    with pytest.raises(AlreadyPaused, match=r"by tester \(sent again on Monday\)\. To change"):
        days.pause("days@2")


def test_a_resume_is_refused_as_a_whole(days):
    """Rule 6.13: one of the refs is not paused."""
    days.pause("days@1")
    seq = days.seq

    for refs in ((), ("days@1", "days@2"), ("total",)):
        with pytest.raises((NotPaused, InvalidRequest)):
            days.resume(*refs)
    with pytest.raises(UnknownAsset, match="Did you mean days"):
        days.resume("day")

    assert days.seq == seq


def test_an_asset_that_left_its_code_location_can_be_resumed(days):
    """Rule 6.13: a pause outlasts its asset's registration."""
    days.pause("total")
    days.handle(c.RegisterDatasets(location=HERE, datasets=(dataset("days", keys=DAYS),)))

    days.resume("total")

    assert days.check() == []
