"""The open job runs, with their processes, and the next retry that the served refs of a build wait for (rule 8.9)."""

from __future__ import annotations

from collections.abc import Collection
from itertools import groupby
from typing import NamedTuple

from databuild_dagster.engine.engine import Engine
from databuild_dagster.engine.holders import in_words
from databuild_dagster.engine.judge import PLAIN_HOLDER
from databuild_dagster.engine.wording import when
from databuild_dagster.model.refs import Ref
from databuild_dagster.model.states import JobRunState
from databuild_dagster.model.wording import few_of
from databuild_dagster.store.queries.served import Awaited

#: Job runs that are read, and launches of these that a sentence names.
MAX_AWAITED = 1000
MAX_NAMED = 3


class Waiting(NamedTuple):
    """The causes for which served refs wait. Without a job run and a retry, nothing known will make them live."""

    job_runs: list[Awaited]
    #: The time of the next retry.
    retry_at: float | None

    @property
    def sentence(self) -> str:
        """The first job run of each launch, with its process; or the time of the retry."""
        launches = [list(runs) for _, runs in groupby(self.job_runs, lambda run: run.launch_id)]
        if launches:
            more = f"; and {len(launches) - MAX_NAMED} other launches" if len(launches) > MAX_NAMED else ""
            return "; ".join(_of_launch(runs) for runs in launches[:MAX_NAMED]) + more
        return "nothing that is known" if self.retry_at is None else f"the retry at {when(self.retry_at)}"


def awaited_by(engine: Engine, serving: Collection[Ref], planned_at: float) -> Waiting:
    """The causes for which the refs wait, if a tick that planned at that time found nothing to do.

    A due ref that the tick did not launch waits for the launches of its job, which has a limit on them.
    """
    queries = engine.queries
    found, due = queries.awaited(serving, MAX_AWAITED), queries.due_soon(serving, planned_at)
    if not found and (waiting := {entry.dataset_id for entry in due if entry.is_now}):
        specs = [spec for id, spec in queries.datasets().items() if id in waiting and spec.concurrency is not None]
        jobs = {(spec.location, spec.job) for spec in specs}
        full = [launch for launch in queries.open_launches() if (launch.location, launch.job) in jobs]
        runs = [run for launch in full for run in queries.job_runs_of_launch(launch.launch_id)]
        found = queries.awaited([ref for run in runs for ref in run.refs], MAX_AWAITED) if runs else []
    return Waiting(found, min((entry.retry_at for entry in due if entry.retry_at is not None), default=None))


def process_of(run: Awaited) -> str:
    """The process that executes a job run, or is to start it, in words."""
    if run.holder is not None and run.holder.startswith(PLAIN_HOLDER):
        return f"Dagster run {run.dagster_run_id}"
    return in_words(run.holder or run.owner)


def _of_launch(runs: list[Awaited]) -> str:
    refs = few_of([run.ref for run in runs], 1)
    does = "is queued" if runs[0].state is JobRunState.QUEUED else "builds it"
    return f"{refs}: job run {runs[0].job_run} {does} since {when(runs[0].since)}, {process_of(runs[0])}"
