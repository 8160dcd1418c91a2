"""The outcome of a job by its trouble: one row for every case (rules 9.5, 9.7)."""

from __future__ import annotations

import pytest

from databuild_dagster.features.operations.job import CannotKeep, Job, RetryJob
from databuild_dagster.features.operations.outcomes import OUTCOME_RULES, JobOutcome, NextStep, next_step, outcome_of
from databuild_dagster.model.errors import LeaseLost
from databuild_dagster.model.operations.states import JobState
from tests.support.catalog import dataset
from tests.support.operations import Operations

DATABASES = ("sqlite",)

BUG, LOST, RETRY = ValueError("a bug"), LeaseLost(id="d.t.1", partition="1"), RetryJob("no network")
ODD = CannotKeep(what="the progress of a job", value="dict", why="it is no bytes")


@pytest.fixture
def jobs(make_world):
    world = make_world(dataset("days", keys=("1", "2")))
    world.live("days@1", "days@2")
    operations = Operations(world)
    return operations.executor().take(operations.manager.start("write", "days", None), 2)


@pytest.mark.parametrize("can_fail", [True, False])
@pytest.mark.parametrize("what", JobOutcome)
def test_exactly_one_row_says_what_becomes_of_a_job(what, can_fail):
    rows = [rule for rule in OUTCOME_RULES if rule.outcome is what and rule.can_fail in (None, can_fail)]

    assert [row.next_step for row in rows] == [next_step(what, can_fail=can_fail)]
    assert all(row.why for row in rows)


def test_a_job_of_a_type_that_cannot_fail_is_marked_failed_only_for_wrong_code():
    """Rule 9.5: for `can_fail=False` a failure is retried with backoff, never marked, unless every retry would be the same."""
    failing = {what for what in JobOutcome if next_step(what, can_fail=False) is NextStep.FAILED}

    assert failing == {JobOutcome.COULD_NOT_KEEP}, "its code is wrong"


def change_nothing(job: Job) -> None:
    pass


def stop(job: Job) -> None:
    job.context.stop()


def interrupt(job: Job) -> None:
    job.context.interrupt()


def stop_and_interrupt(job: Job) -> None:
    job.context.interrupt()
    job.context.stop()


def drop(job: Job) -> None:
    job.is_dropped = True


def fail(job: Job) -> None:
    job.failed = job.context.failed_with("before")


@pytest.mark.parametrize(
    ("before", "error", "expected"),
    [
        (change_nothing, BUG, JobOutcome.RAISED),
        (change_nothing, RETRY, JobOutcome.ASKED_TO_RETRY),
        (change_nothing, LOST, JobOutcome.LEASE_LOST),
        (change_nothing, ODD, JobOutcome.COULD_NOT_KEEP),
        (interrupt, ODD, JobOutcome.INTERRUPTED),
        (stop, BUG, JobOutcome.STOPPED),
        (stop, RETRY, JobOutcome.STOPPED),
        (stop, LOST, JobOutcome.LEASE_LOST),
        (interrupt, BUG, JobOutcome.INTERRUPTED),
        (interrupt, RETRY, JobOutcome.INTERRUPTED),
        (interrupt, LOST, JobOutcome.LEASE_LOST),
        (stop_and_interrupt, BUG, JobOutcome.STOPPED),
        (fail, BUG, JobOutcome.CLEAN_UP_RAISED),
        (fail, RETRY, JobOutcome.CLEAN_UP_RAISED),
        (fail, LOST, JobOutcome.LEASE_LOST),
        (drop, BUG, JobOutcome.CLEAN_UP_RAISED),
        (drop, RETRY, JobOutcome.CLEAN_UP_RAISED),
        (drop, LOST, JobOutcome.CLEAN_UP_RAISED),
    ],
)
def test_what_an_error_is_to_a_job_depends_on_how_far_it_has_come(jobs, before, error, expected):
    """Rules 9.5, 9.7: a lost lease ends a job, but the clean-up after it is tried until it succeeds."""
    before(jobs[0])

    assert outcome_of((jobs[0],), error) is expected


@pytest.mark.parametrize(
    ("error", "expected"),
    [(BUG, JobOutcome.BATCH_RAISED), (LOST, JobOutcome.BATCH_RAISED), (RETRY, JobOutcome.ASKED_TO_RETRY)],
)
def test_an_error_of_a_batch_is_of_no_job_alone(jobs, error, expected):
    """Rule 9.4"""
    assert outcome_of(tuple(jobs), error) is expected


def test_a_job_that_raised_says_why_in_its_mark(jobs):
    mark = jobs[0].context.failed_with("x" * 10_000)

    assert (mark.state, mark.token) == (JobState.FAILED, jobs[0].context.token)
    assert len(mark.detail["error"]) == 2_000
