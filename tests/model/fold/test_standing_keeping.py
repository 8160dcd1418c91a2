"""Keep going: what stays wanted when an input has failed, until when, and for whom (rule 6.14)."""

from __future__ import annotations

import pytest

from databuild_dagster.model import commands as c
from databuild_dagster.model.errors import WantEnded
from databuild_dagster.model.states import InstanceState, WantState
from tests.support.catalog import dataset

_I, _W = InstanceState, WantState
DAY = 24 * 3600.0
DAYS = ("day@1", "day@2", "day@3")


@pytest.fixture
def month(make_world):
    """A month over three days, of which each needs a source of its own."""
    keys = ["1", "2", "3"]
    return make_world(dataset("raw", keys=keys), dataset("day", keys=keys), dataset("month"), dataset("year"))


def kept(world, ref):
    """The open derivative wants of a ref."""
    return [want.id for want in world.derivative_wants(ref)]


def test_the_other_days_of_a_month_are_built_when_one_has_failed(month):
    want = month.want("month")
    month.miss("month", *DAYS)
    before = {ref: kept(month, ref) for ref in DAYS[1:]}

    month.fail("day@1")

    assert month.want_state(want) is _W.UPSTREAM_FAILED
    assert {ref: kept(month, ref) for ref in DAYS[1:]} == before
    assert month.due() == ["day@2", "day@3"]
    month.live("day@2", "day@3")
    assert month.due() == []
    assert month.check() == []


def test_a_want_for_what_failed_upstream_already_has_the_others_built(month):
    month.want("month", ttl=60.0)
    month.miss("month", *DAYS)
    month.fail("day@1")
    month.clock.turn(60.0)
    expiring, _ = month.queries.wants.overdue(month.clock.now, 100)
    month.handle(c.ExpireWants(want_ids=tuple(expiring)))
    assert month.due() == []

    month.want("month")

    assert month.due() == ["day@2", "day@3"]


def test_what_a_failed_day_misses_besides_is_built_too(month):
    """Transitively: the day, its other input, and all that wait for the day; it is kept for the want at the end of these."""
    want = month.want("year")
    month.miss("year", "month")
    month.miss("month", "day@1")
    month.miss("day@1", "raw@1", "raw@2")

    month.fail("raw@1")

    assert month.states("day@1", "month", "year") == [_I.UPSTREAM_FAILED] * 3
    assert month.due() == ["raw@2"]
    month.cancel_want(want)
    assert month.due() == []


def test_a_kept_want_is_as_urgent_as_the_wants_that_failed_and_lives_a_week_at_most(month):
    first = month.want("month", priority=2, ttl=None)
    month.want("month", priority=1, sla=50.0)
    month.miss("month", *DAYS)

    month.fail("day@1")

    (want,) = month.derivative_wants("day@2")
    assert (want.priority, want.deadline, want.expires_at) == (
        2,
        month.clock.now + 50.0,
        month.clock.now + 7 * DAY,
    )
    assert month.want_view(first).expires_at is None


@pytest.mark.parametrize("named", ["want", "request"])
def test_a_cancel_of_what_failed_ends_what_is_kept_for_it(month, named):
    outcome = month.handle(c.CreateWants(wants=(("month",),)))
    month.miss("month", *DAYS)
    month.miss("day@2", "raw@2")
    month.fail("day@1")
    name = outcome.want_ids[0] if named == "want" else outcome.request_id

    canceled = month.cancel_want(name)

    assert len(canceled.events[0].fact.want_ids) == 2
    assert month.want_state(outcome.want_ids[0]) is _W.UPSTREAM_FAILED
    assert month.due() == []
    assert month.check() == []
    with pytest.raises(WantEnded):
        month.cancel_want(name)


def test_a_cancel_ends_what_was_kept_several_levels_above(month):
    """A kept want that fails upstream hands on the want that it was made for."""
    want = month.want("month")
    month.miss("month", *DAYS)
    month.fail("day@1")
    month.miss("day@2", "raw@1", "raw@2")
    month.fail("raw@1")
    assert month.due() == ["day@3", "raw@2"]

    month.cancel_want(want)

    assert month.due() == []


def test_what_is_kept_for_two_wants_ends_with_the_second(month):
    first, second = month.want("month"), month.want("month")
    month.miss("month", *DAYS)
    month.fail("day@1")

    month.cancel_want(first)
    assert month.due() == ["day@2", "day@3"]

    month.cancel_want(second)
    assert month.due() == []


def test_a_fail_fast_want_keeps_nothing(month):
    month.want("month", fail_fast=True)
    month.miss("month", "day@1", "day@2")
    month.miss("day@1", "raw@1", "raw@2")

    month.fail("raw@1")

    assert month.due() == []


def test_a_retry_is_as_fail_fast_as_the_want_was(month):
    month.want("month", fail_fast=True)
    month.miss("month", *DAYS)
    month.fail("day@1")

    month.handle(c.RetryRefs(refs=("month",)))
    month.fail("day@1")
    month.miss("month", *DAYS)

    assert month.due() == []
