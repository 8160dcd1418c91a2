"""The ledger of requests and the metrics of jobs as JSON has them (rules 8, 15)."""

from collections.abc import Iterable, Mapping
from typing import Annotated

import msgspec

from databuild_dagster.model.coordination import MESSAGES
from databuild_dagster.model.records import Column, extended
from databuild_dagster.store.job_metrics import JobMetrics
from databuild_dagster.store.ledger import Ledger, LedgerEntry
from databuild_dagster.store.queries.ids import IdKind
from databuild_dagster.store.queries.queries import Queries
from databuild_dagster.store.queries.wants import Requester


class ShownEntry(LedgerEntry, frozen=True):
    """The answer to a request for a ref, with its message, which is empty for a build."""

    message: Annotated[str, Column(wide_only=True, none="")]


class RequestedEntry(ShownEntry, frozen=True):
    """An entry with its requester, which is null for a Dagster run."""

    requested_by: Requester | None


class ShownMetrics(msgspec.Struct, frozen=True):
    """What became of a job's runs, and what delegation has spared. `job_runs` counts them by state."""

    success_rate: float | None
    avoided: int
    seconds_saved: float | None
    median_seconds: float | None
    job_runs: dict[str, int]


def entries_of_request(ledger: Ledger, queries: Queries, name: str, most: int) -> list[LedgerEntry]:
    """The entries of a request, a Dagster run or a launch, in full or by the end of its id. Raises as `IdQueries.full`."""
    entries = ledger.of_requester(name, most=most)
    if not entries:
        full = queries.ids.full(IdKind.REQUEST, name)
        entries = ledger.of_requester(full, most=most) or ledger.of_launch(full, most=most)
    return entries


def shown_entry(entry: LedgerEntry) -> ShownEntry:
    """An entry in the shape of `history --requests`."""
    return extended(ShownEntry, entry, message=MESSAGES.get(entry.kind, ""))


def requested_entries(requesters: Mapping[str, Requester], entries: Iterable[LedgerEntry]) -> list[RequestedEntry]:
    """Entries with their requesters, in their order."""
    return [
        extended(RequestedEntry, shown_entry(entry), requested_by=requesters.get(entry.requester)) for entry in entries
    ]


def metrics_shape(metrics: Iterable[JobMetrics]) -> dict[str, ShownMetrics]:
    """The metrics of jobs by their names, in the shape of `metrics`."""
    return {of_job.job: extended(ShownMetrics, of_job, job_runs=of_job.counts) for of_job in metrics}
