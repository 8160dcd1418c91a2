"""The urls of the API about arcs, gaps, operations and the ledger."""

from __future__ import annotations

from typing import Final, TypedDict

from databuild_dagster.engine.engine import Engine
from databuild_dagster.engine.why.want_report import check_partition
from databuild_dagster.model.arcs import ARC
from databuild_dagster.model.coordination import Answer, DelegationOutcome
from databuild_dagster.model.errors import InvalidRequest
from databuild_dagster.model.fold.demands import DERIVATIVE
from databuild_dagster.model.operations.keys import OperationId
from databuild_dagster.model.refs import Ref, asset_of
from databuild_dagster.shapes.arcs import ArcDetailShape, Arcs, ArcsShape
from databuild_dagster.shapes.followed_operations import FollowedOperations, OperationDetail, OperationsShape
from databuild_dagster.shapes.gap_ranges import Asked, GapsShape, gaps_in_range
from databuild_dagster.shapes.ledger import (
    JobMetricsShape,
    RequestedEntry,
    entries_of_request,
    metrics_shape,
    requested_entries,
)
from databuild_dagster.store.job_metrics import JobTotals
from databuild_dagster.store.ledger import LedgerEntry
from databuild_dagster.web.parameters import MAX_SEQ, choice, flag, number, ref, text
from databuild_dagster.web.routes import ApiRoute
from databuild_dagster.web.state import State

MAX_ARCS: Final = 25
MAX_LOTS: Final = 200
MAX_ENTRIES: Final = 500
#: The newest entries of the ledger, among which filters other than a request and a ref search.
MAX_SEARCHED: Final = 1_000
MAX_OPERATIONS: Final = 100


class LedgerShape(TypedDict):
    """Entries of the ledger, newest first: of `n_searched` read entries, those that the filters admit.

    `is_cut` if there may be older entries of the same request, of the same ref, or of all.
    """

    n: int
    #: Of these, those whose ref is neither live nor failed yet.
    n_waiting: int
    n_searched: int
    is_cut: bool
    entries: list[RequestedEntry]


class SavingsShape(TypedDict):
    """What became of each job's runs. While the first count of a large store goes on, `is_counted` is false."""

    is_counted: bool
    jobs: dict[str, JobMetricsShape]


def arcs(state: State, search: str | None, limit: int, offset: int) -> ArcsShape:
    """The arcs in chains."""
    return _arcs(state).chains(search, limit, offset)


def arc(state: State, name: str, limit: int, offset: int) -> ArcDetailShape:
    """An arc with its lots."""
    return _arcs(state).arc(name, limit, offset)


def _arcs(state: State) -> Arcs:
    counts: dict[str, dict[str, int]] = {}
    for asset, instance_state, n in state.kept("ref_counts", state.engine.queries.ref_counts):
        counts.setdefault(asset, {})[instance_state] = n
    return Arcs(state.engine, state.instance, counts)


def gaps(state: State, dataset: str, start: str | None, end: str | None, chain: bool, limit: int) -> GapsShape:
    """The absent lots of a range."""
    return gaps_in_range(state.engine, state.instance, Asked(dataset, start, end, chain), limit)


def operations(state: State, dataset: str | None, before: int | None, limit: int) -> OperationsShape:
    """The operations on a dataset, or on all."""
    if dataset is not None:
        state.engine.queries.known_dataset(dataset)
    return _followed(state).operations(dataset, before, limit)


def operation(state: State, id: str, within: str | None, offset: int) -> OperationDetail:
    """One operation."""
    return _followed(state).operation(OperationId.parse(id), within or "", offset)


def _followed(state: State) -> FollowedOperations:
    return state.made_once(FollowedOperations)


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
) -> LedgerShape:
    """Entries of the ledger."""
    found = _searched(state, requester, ref, with_builds=builds or kind == Answer.BUILD.value)
    if dataset is not None:
        state.engine.queries.known_dataset(dataset)
    requesters = state.engine.queries.requesters({entry.requester for entry in found})
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
    return {
        "n": len(admitted),
        "n_waiting": sum(entry.outcome is DelegationOutcome.WAITING for entry in admitted),
        "n_searched": len(found),
        "is_cut": len(found) >= MAX_SEARCHED,
        "entries": requested_entries(requesters, admitted[:limit]),
    }


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


def savings(state: State) -> SavingsShape:
    """What delegation has spared, by job."""
    jobs = state.soon("savings", lambda: metrics_shape(state.made_once(_job_totals).metrics()))
    return {"is_counted": jobs is not None, "jobs": jobs or {}}


def _job_totals(engine: Engine) -> JobTotals:
    return JobTotals(engine.store)


_OFFSET_MOST: Final = 10_000_000

FLOW_ROUTES: Final = (
    ApiRoute(
        "/arcs",
        "The arcs in chains, sources first.",
        arcs,
        ArcsShape,
        (
            text("search", "A part of the name of an arc or of a source."),
            number("limit", "The number of arcs at most.", MAX_ARCS, 1, MAX_ARCS),
            number("offset", "The number of arcs before the first.", 0, 0, 1_000_000),
        ),
    ),
    ApiRoute(
        "/arc",
        "An arc with its newest lots, and the data that arrived after they were built.",
        arc,
        ArcDetailShape,
        (
            text("name", "The asset that subscribes to others.", required=True),
            number("limit", "The number of lots at most.", 100, 1, MAX_LOTS),
            number("offset", "The number of newer lots before the first.", 0, 0, _OFFSET_MOST),
        ),
    ),
    ApiRoute(
        "/gaps",
        "The absent lots of a range, each with its cause and the first cause.",
        gaps,
        GapsShape,
        (
            text("dataset", "The name of an asset whose partitions are in time.", required=True),
            text("start", "Start of the range: a lot id, a partition key or a time. By default the newest lots."),
            text("end", "End of the range, exclusive: a lot id, a partition key or a time."),
            flag("chain", "Also report on every dataset upstream, and follow lots that no want asks for."),
            number("limit", "The number of absent lots at most.", 100, 1, 500),
        ),
    ),
    ApiRoute(
        "/operations",
        "The running operations, and those that ended last.",
        operations,
        OperationsShape,
        (
            text("dataset", "Only operations on this asset."),
            number("before", "Only operations that ended before this event.", None, 1, MAX_SEQ),
            number("limit", "The number of running operations at most, and of ended ones.", 50, 1, MAX_OPERATIONS),
        ),
    ),
    ApiRoute(
        "/operation",
        "One operation with its jobs, and its report without rows of data.",
        operation,
        OperationDetail,
        (
            text("id", "The id of the operation.", required=True),
            text("within", "Only partitions whose keys begin so, in the grid."),
            number("offset", "The number of partitions before the first of the grid.", 0, 0, _OFFSET_MOST),
        ),
    ),
    ApiRoute(
        "/ledger",
        "What each request got for each ref, newest first: joined or reused, and with `builds` also built.",
        ledger,
        LedgerShape,
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
        SavingsShape,
    ),
)
