"""The pauses of refs and of whole assets, now and at an earlier event (rule 6.13)."""

from __future__ import annotations

import pytest

from databuild_dagster.model.decide.context import BACKOFF_SECONDS
from databuild_dagster.model.refs import parse_ref
from tests.support.catalog import dataset

MON, TUE = parse_ref("days@mon"), parse_ref("days@tue")


@pytest.fixture
def days(make_world):
    return make_world(dataset("days", keys=["mon", "tue"]), dataset("total"))


def test_a_ref_that_no_event_has_named_is_paused_with_its_asset(days):
    days.pause("days")

    standings = days.queries.planning.standings([MON, parse_ref("total")], days.clock.now)

    assert [(standing.is_paused, standing.is_schedulable) for standing in standings.values()] == [
        (True, False),
        (False, True),
    ]


def test_of_two_pauses_the_one_that_ends_last_is_given(days):
    days.pause("days", until=days.clock.now + 60)
    days.pause(MON, reason="for longer")

    found = days.queries.planning.paused([MON, TUE], days.clock.now)

    assert {ref: pause.ref for ref, pause in found.items()} == {MON: MON, TUE: "days"}
    assert [pause.ref for pause in days.queries.planning.pauses_in_force(days.clock.now)] == ["days", MON]
    assert [pause.ref for pause in days.queries.planning.pauses_in_force(days.clock.now + 60)] == [MON]


def test_the_pauses_of_an_earlier_event_are_those_that_no_event_up_to_it_had_ended(days):
    """Rule 3.2"""
    days.pause(MON)
    before = days.seq
    days.resume(MON)
    days.pause(TUE)

    now = days.clock.now
    assert [list(days.queries.planning.paused([MON, TUE], now, seq=seq)) for seq in (before - 1, before, days.seq)] == [
        [],
        [MON],
        [TUE],
    ]


def test_of_many_due_refs_only_those_that_are_not_paused_are_planned(days):
    """Rule 6.13: in the queries of all due refs, and of the refs that a build serves."""
    for name in (MON, TUE, "total"):
        days.want(name)
    days.pause(MON)
    now, ids = days.clock.now, list(days.queries.datasets.all())

    due = days.queries.planning.due_refs(ids, now, 10).refs
    served = days.queries.planning.due_among([MON, TUE], ids, now, 10).refs

    assert sorted(ref.ref for ref in due) == [TUE, "total"]
    assert [ref.ref for ref in served] == [TUE]


def test_the_next_retry_is_one_that_may_be_launched_when_its_backoff_ends(days):
    """Rule 6.13: a pause that ends before counts no more."""
    (of_days, of_total) = days.queries.datasets.all()
    now = days.clock.now
    for name in (MON, "total"):
        days.want(name)
        days.fail(name, kind="transient")
    ends_at = now + BACKOFF_SECONDS

    found = [days.queries.planning.next_retry(ids, now) for ids in ([of_days], [of_total], [])]
    days.pause(MON, until=ends_at - 1)
    days.pause("total")
    while_paused = [days.queries.planning.next_retry(ids, now) for ids in ([of_days], [of_total])]

    assert found == [ends_at, ends_at, None]
    assert while_paused == [ends_at, None]
