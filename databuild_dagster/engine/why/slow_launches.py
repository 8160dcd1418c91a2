"""Launches that run much longer than their job usually does: the process lives, and its work may stand still (rule 8.3)."""

from __future__ import annotations

from collections.abc import Iterable
from statistics import median
from typing import Final, NamedTuple

from databuild_dagster.model.refs import Ref, asset_of
from databuild_dagster.model.wording import typed
from databuild_dagster.store.queries.queries import Queries

#: A launch is slow after so many times its usual duration, which needs so many past launches, and not before so many seconds.
TIMES_USUAL: Final = 5
MIN_PAST: Final = 3
MIN_SECONDS: Final = 60.0


class Running(NamedTuple):
    """A job run that has started."""

    launch_id: str
    job_run: str
    ref: Ref
    since: float


def slow_launches(queries: Queries, running: Iterable[Running], now: float) -> dict[str, str]:
    """A clause about each slow launch among those of some job runs, by launch id (rule 8.3).

    The usual duration of a job run is that of `ledger metrics`; those of a launch count together.
    """
    found: dict[str, str] = {}
    for run in {run.launch_id: run for run in running if now - run.since >= MIN_SECONDS}.values():
        spans = queries.launch_spans(asset_of(run.ref))
        of_one = median(span.seconds / span.n_job_runs for span in spans) if len(spans) >= MIN_PAST else 0.0
        usual = of_one * len(queries.job_runs_of_launch(run.launch_id))
        if usual and now - run.since >= TIMES_USUAL * usual:
            found[run.launch_id] = (
                f", {(now - run.since) / usual:.0f} times as long as usual, so its work may stand still: "
                f"`databuild job-run cancel --retry {typed(run.job_run)}` builds it again"
            )
    return found
