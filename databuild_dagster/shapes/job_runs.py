"""A job run as JSON has it (rules 15)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypedDict, cast

from databuild_dagster.model.refs import Ref
from databuild_dagster.shapes.fields import picked
from databuild_dagster.store.queries.job_runs import JobRunView


class JobRunShape(TypedDict):
    """One job run; `instances` are in the order of `refs`."""

    id: str
    job: str
    refs: Sequence[Ref]
    state: str
    dagster_run_id: str | None
    started_at: str | None
    ended_at: str | None
    error: str | None
    instances: Sequence[str]


def job_run_shape(job_run: JobRunView) -> JobRunShape:
    """A job run in the shape of `job-run list`."""
    names = ("id", "job", "refs", "state", "dagster_run_id", "started_at", "ended_at", "error", "instances")
    return cast("JobRunShape", picked(job_run, *names))
