"""The ledger of requests and the metrics of jobs as JSON has them (rules 8, 15)."""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Annotated, Final

import msgspec

from databuild_dagster.model.coordination import MESSAGES, Answer
from databuild_dagster.model.records import Column, extended
from databuild_dagster.model.refs import Ref
from databuild_dagster.model.wording import few_of
from databuild_dagster.store.job_metrics import JobMetrics
from databuild_dagster.store.ledger import Ledger, LedgerEntry
from databuild_dagster.store.queries.ids import IdKind
from databuild_dagster.store.queries.instances import EqualInput
from databuild_dagster.store.queries.queries import Queries
from databuild_dagster.store.queries.wants import Requester

#: Inputs with equal rows that an entry names.
MAX_EQUAL: Final = 20


class ShownEntry(LedgerEntry, frozen=True):
    """The answer to a request for a ref, with its message, which is empty for a build.

    `equal_rows` names what was built with equal rows: the ref itself, or the first inputs that no build of it followed.
    """

    message: Annotated[str, Column(wide_only=True, none="")]
    equal_rows: Annotated[Sequence[Ref], Column("equal rows", text=few_of, wide_only=True)]


class RequestedEntry(ShownEntry, frozen=True):
    """An entry with its requester, which is null for a Dagster run."""

    requested_by: Requester | None


class ShownMetrics(msgspec.Struct, frozen=True):
    """What became of a job's runs, and what delegation and equal rows have spared. `job_runs` counts them by state."""

    success_rate: float | None
    avoided: int
    cut_off: int
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


def shown_entries(queries: Queries, entries: Sequence[LedgerEntry]) -> list[ShownEntry]:
    """Entries in the shape of `history --requests`, in their order."""
    equal = _equal_rows(queries, entries)
    return [
        extended(ShownEntry, entry, message=MESSAGES.get(entry.kind, ""), equal_rows=refs)
        for entry, refs in zip(entries, equal, strict=True)
    ]


def _equal_rows(queries: Queries, entries: Sequence[LedgerEntry]) -> list[list[Ref]]:
    """Of each entry, the ref if its build had the rows of an earlier one, or the inputs of a reuse, built before the request."""
    built = queries.instances.first_with_rows(
        (entry.uuid for entry in entries if entry.uuid is not None), with_erased=False
    )
    reused: dict[str, list[EqualInput]] = defaultdict(list)
    for one in queries.instances.equal_inputs(
        entry.uuid for entry in entries if entry.uuid is not None and entry.kind is Answer.REUSE
    ):
        reused[one.uuid].append(one)
    return [
        [one.ref for one in reused[entry.uuid or ""] if one.live_at <= entry.asked_at][:MAX_EQUAL]
        if entry.kind is Answer.REUSE
        else [entry.ref] * (entry.uuid in built)
        for entry in entries
    ]


def requested_entries(
    queries: Queries, requesters: Mapping[str, Requester], entries: Sequence[LedgerEntry]
) -> list[RequestedEntry]:
    """Entries with their requesters, in their order."""
    return [
        extended(RequestedEntry, entry, requested_by=requesters.get(entry.requester))
        for entry in shown_entries(queries, entries)
    ]


def metrics_shape(metrics: Iterable[JobMetrics]) -> dict[str, ShownMetrics]:
    """The metrics of jobs by their names, in the shape of `metrics`."""
    return {of_job.job: extended(ShownMetrics, of_job, job_runs=of_job.counts) for of_job in metrics}
