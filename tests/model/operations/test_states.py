"""When an operation is complete, by the ends of its jobs (rule 9.6)."""

from __future__ import annotations

from itertools import product

import pytest

from databuild_dagster.model.operations.states import JobState, OperationCause, end_of

ENDS = (None, JobState.SUCCESS, JobState.FAILED)


@pytest.mark.parametrize("fail_fast", [True, False])
@pytest.mark.parametrize("jobs", [jobs for n in range(4) for jobs in product(ENDS, repeat=n)])
def test_an_operation_is_complete_when_all_jobs_ended_or_one_failed_fast(jobs, fail_fast):
    """The rule, counted job by job."""
    is_over = jobs != () and None not in jobs
    expected = None
    if JobState.FAILED in jobs and (is_over or fail_fast):
        expected = OperationCause.JOB_FAILED
    elif is_over:
        expected = OperationCause.ALL_SUCCEEDED

    n_succeeded, n_failed = jobs.count(JobState.SUCCESS), jobs.count(JobState.FAILED)

    assert end_of(len(jobs), n_succeeded, n_failed, fail_fast=fail_fast) is expected
