"""Wants are recorded, canceled and expire (rules 5, 6.10)."""

from __future__ import annotations

from databuild_dagster.model import errors
from databuild_dagster.model.errors import Refused
from databuild_dagster.model.states import WantState

from .consequences import cancel_job_runs, settle
from .state import NEVER, Answer, Naive, NaiveWant


def want(
    naive: Naive,
    refs: tuple[str, ...],
    *,
    fail_fast: bool = False,
    priority: int = 0,
    ttl_seconds: float | None = None,
    sla_seconds: float | None = None,
    data_timestamp: float | None = None,
    requester: str = "",
) -> NaiveWant | type[Refused]:
    """Rule 5.5: the TTL counts from now, the SLA from the timestamp of the data."""
    ttl, sla = (NEVER if seconds is None else seconds for seconds in (ttl_seconds, sla_seconds))
    if ttl <= 0.0 or sla <= 0.0:
        return errors.InvalidRequest
    since = naive.now if data_timestamp is None else data_timestamp
    recorded = NaiveWant(
        refs,
        fail_fast=fail_fast,
        priority=priority,
        created_at=naive.now,
        expires_at=naive.now + ttl,
        deadline=since + sla,
        requester=requester,
    )
    naive.wants.append(recorded)
    settle(naive)
    return recorded


def overdue(naive: Naive) -> list[NaiveWant]:
    """The open wants whose TTL has ended."""
    return [want for want in naive.wants if want.is_open and want.expires_at <= naive.now]


def expire(naive: Naive, wants: list[NaiveWant]) -> None:
    """Rule 5.5"""
    for want in wants:
        want.state = WantState.EXPIRED
    settle(naive)


def late(naive: Naive) -> list[NaiveWant]:
    """The wants that have missed their SLA without a record of it (rules 5.5, 5.8)."""
    not_late = {WantState.SUCCESSFUL, WantState.CANCELED}
    passed = [want for want in naive.wants if want.deadline <= naive.now and want.state not in not_late]
    return [want for want in passed if not want.is_derivative and not want.is_late and not want.was_met]


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
