"""The urls and the page of the ledger: what each request joined or reused, and what that has spared."""

from typing import Any, Final

import msgspec

from databuild_dagster.engine.why.ledger import (
    RequestedEntry,
    ShownMetrics,
    entries_of_request,
    metrics_shape,
    requested_entries,
)
from databuild_dagster.engine.why.want_report import check_partition
from databuild_dagster.model.coordination import Answer, DelegationOutcome
from databuild_dagster.model.errors import InvalidRequest
from databuild_dagster.model.fold.demands import DERIVATIVE
from databuild_dagster.model.refs import Ref, asset_of
from databuild_dagster.model.states import ARC
from databuild_dagster.store.job_metrics import JobTotals
from databuild_dagster.store.ledger import LedgerEntry
from databuild_dagster.web.parameters import choice, flag, number, ref, text
from databuild_dagster.web.routes import ApiRoute, Ask, Page, or_error, parameters_of
from databuild_dagster.web.state import State

MAX_ENTRIES: Final = 500
#: The newest entries of the ledger, among which filters other than a request and a ref search.
MAX_SEARCHED: Final = 1_000


class LedgerPage(msgspec.Struct, frozen=True):
    """Entries of the ledger, newest first: the entries that the filters admit, of `n_searched` read entries.

    `is_cut` if there may be older entries of the same request, of the same ref, or of all.
    """

    n: int
    #: The entries whose ref is neither live nor failed yet.
    n_waiting: int
    n_searched: int
    is_cut: bool
    entries: list[RequestedEntry]


class Savings(msgspec.Struct, frozen=True):
    """What became of each job's runs. While the first count of a large store goes on, `is_counted` is false."""

    is_counted: bool
    jobs: dict[str, ShownMetrics]


def ledger(
    state: State,
    requester: str | None,
    ref: Ref | None,
    dataset: str | None,
    kind: str | None,
    outcome: str | None,
    builds: bool,
    derived: bool,
    limit: int,
) -> LedgerPage:
    """Entries of the ledger."""
    found = _searched(state, requester, ref, with_builds=builds or kind == Answer.BUILD.value)
    if dataset is not None:
        state.engine.queries.datasets.known(dataset)
    requesters = state.engine.queries.wants.requesters({entry.requester for entry in found})
    own = {name for name, by in requesters.items() if by.source in (ARC, DERIVATIVE)}
    admitted = [
        entry
        for entry in found
        if (builds or kind is not None or entry.kind is not Answer.BUILD)
        and (derived or entry.requester not in own)
        and kind in (None, entry.kind.value)
        and outcome in (None, entry.outcome.value)
        and dataset in (None, asset_of(entry.ref))
        and ref in (None, entry.ref)
    ]
    n_waiting = sum(entry.outcome is DelegationOutcome.WAITING for entry in admitted)
    entries = requested_entries(state.engine.queries, requesters, admitted[:limit])
    return LedgerPage(len(admitted), n_waiting, len(found), len(found) >= MAX_SEARCHED, entries)


def _searched(state: State, requester: str | None, ref: Ref | None, *, with_builds: bool) -> list[LedgerEntry]:
    """The entries of a request or of a ref, which have an index; else the newest of all, which have none."""
    queries = state.engine.queries
    of_store = state.engine.ledger
    if requester is not None:
        return entries_of_request(of_store, queries, requester, MAX_SEARCHED)
    if ref is not None:
        found = of_store.of_ref(ref, most=MAX_SEARCHED)
        if not found:
            check_partition(queries, state.engine.catalog, ref)
        return found
    if with_builds:
        raise InvalidRequest(
            what="builds",
            value="true",
            why="it would list every build; name a request or a partition",
        )
    return state.kept("delegations", lambda: of_store.delegations(most=MAX_SEARCHED))


def savings(state: State) -> Savings:
    """What delegation has spared, by job."""
    jobs = state.soon("savings", lambda: metrics_shape(state.made_once(_job_totals).metrics()))
    return Savings(jobs is not None, jobs or {})


def _job_totals(state: State) -> JobTotals:
    return JobTotals(state.engine.store)


ROUTES: Final = (
    ApiRoute(
        "/ledger",
        "What each request got for each ref, newest first: joined or reused, and with `builds` also built.",
        ledger,
        LedgerPage,
        (
            text("requester", "Only this request: its id, a Dagster run or a launch."),
            ref("ref", "Only this ref."),
            text("dataset", "Only partitions of this asset."),
            choice("kind", "Only entries of this kind.", [found.value for found in Answer]),
            choice("outcome", "Only entries that ended so.", [found.value for found in DelegationOutcome]),
            flag("builds", "Also what a request built by itself; needs a requester or a ref."),
            flag("derived", "Also the wants of arcs and of job runs, which requests of others caused."),
            number("limit", "The number of entries at most.", 100, 1, MAX_ENTRIES),
        ),
    ),
    ApiRoute(
        "/savings",
        "What became of each job's runs, and what delegation has spared.",
        savings,
        Savings,
    ),
)


def _delegations(ask: Ask, values: dict[str, Any]) -> dict[str, Any]:
    found, error = or_error(lambda: ask("ledger", **values))
    savings = ask("savings")
    return {
        "values": values,
        "found": found,
        "error": error,
        "is_counted": savings["is_counted"],
        "jobs": _spared(savings["jobs"]),
        "kinds": [kind.value for kind in Answer],
        "outcomes": [outcome.value for outcome in DelegationOutcome],
    }


def _spared(savings: dict[str, Any]) -> list[dict[str, Any]]:
    """The jobs, the highest `avoided` first."""
    jobs = [{"job": job, **metrics} for job, metrics in savings.items()]
    return sorted(jobs, key=lambda found: (-found["avoided"], found["job"]))


PAGES: Final = (
    Page("/delegations", "delegations.html", _delegations, parameters_of(ROUTES, "/ledger"), entry="Requests"),
)
