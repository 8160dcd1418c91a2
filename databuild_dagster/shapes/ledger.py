"""The ledger of requests and the metrics of jobs as JSON has them (rules 8, 15)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TypedDict, cast

from databuild_dagster.model.refs import Ref
from databuild_dagster.shapes.fields import picked, shaped
from databuild_dagster.store.job_metrics import JobMetrics
from databuild_dagster.store.ledger import Ledger, LedgerEntry
from databuild_dagster.store.queries.ids import IdKind
from databuild_dagster.store.queries.queries import Queries
from databuild_dagster.store.queries.wants import Requester


class LedgerEntryShape(TypedDict):
    """The answer to one request for one ref."""

    requester: str
    ref: Ref
    kind: str
    job_run: str | None
    uuid: str | None
    outcome: str
    asked_at: str
    ended_at: str | None
    dagster_run_id: str | None
    message: str
    reason: str


class RequesterShape(TypedDict):
    """The person, schedule or arc behind a request."""

    source: str
    source_id: str | None
    actor: str
    comment: str


class RequestedEntry(LedgerEntryShape):
    """An entry with its requester, which is null for a Dagster run."""

    requested_by: RequesterShape | None


class JobMetricsShape(TypedDict):
    """What became of a job's runs, and what delegation has spared. `job_runs` counts them by state."""

    success_rate: float | None
    avoided: int
    seconds_saved: float | None
    median_seconds: float | None
    job_runs: dict[str, int]


def entries_of_request(ledger: Ledger, queries: Queries, name: str, most: int) -> list[LedgerEntry]:
    """The entries of a request, a Dagster run or a launch, in full or by the end of its id. Raises as `full_id`."""
    entries = ledger.of_requester(name, most=most)
    if not entries:
        full = queries.full_id(IdKind.REQUEST, name)
        entries = ledger.of_requester(full, most=most) or ledger.of_launch(full, most=most)
    return entries


def entry_shape(entry: LedgerEntry) -> LedgerEntryShape:
    """An entry in the shape of `ledger list`."""
    return cast("LedgerEntryShape", picked(entry, *entry._fields, "message"))


def requested_entries(requesters: Mapping[str, Requester], entries: Iterable[LedgerEntry]) -> list[RequestedEntry]:
    """Entries with their requesters, in their order."""
    found: list[RequestedEntry] = []
    for entry in entries:
        by = requesters.get(entry.requester)
        found.append({**entry_shape(entry), "requested_by": None if by is None else shaped(RequesterShape, by)})
    return found


def metrics_shape(metrics: Iterable[JobMetrics]) -> dict[str, JobMetricsShape]:
    """The metrics of jobs by their names, in the shape of `ledger metrics`."""
    return {of_job.job: shaped(JobMetricsShape, of_job, job_runs=of_job.counts) for of_job in metrics}
