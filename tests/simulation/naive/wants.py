"""Wants are recorded and canceled (rules 5, 6.10)."""

from __future__ import annotations

from databuild_dagster.model import errors
from databuild_dagster.model.states import WantState

from .consequences import cancel_job_runs, settle
from .state import Answer, Naive, NaiveWant


def want(naive: Naive, refs: tuple[str, ...], *, fail_fast: bool = False) -> NaiveWant:
    recorded = NaiveWant(refs, fail_fast=fail_fast)
    naive.wants.append(recorded)
    settle(naive)
    return recorded


def cancel(naive: Naive, want: NaiveWant, *, terminate: bool) -> Answer:
    """Rules 6.10, 6.14: a want that failed is withdrawn, if wants are kept for it."""
    kept = [other for other in naive.wants if other.is_open and want in other.kept_for]
    ending = []
    if want.is_open:
        ending.append(want)
    elif kept and not want.is_withdrawn:
        want.is_withdrawn = True
    else:
        return errors.WantEnded
    for other in kept:
        if all(served.is_withdrawn for served in other.kept_for):
            ending.append(other)
    for other in ending:
        other.state = WantState.CANCELED
    settle(naive)
    # A ref that a waiting one misses has its derivative want by now.
    needless = [ref for other in ending for ref in other.refs if not naive.is_needed(ref)]
    cancel_job_runs(naive, needless if terminate else [])
    return None
