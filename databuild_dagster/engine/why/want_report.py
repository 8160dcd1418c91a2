"""Wants: by filter, with what each waits for, behind an instance, and after a command, as JSON has them (rules 5.9, 5.10, 15).

The wants of an instance are those open for its ref when it came, back to wants that people recorded. A derivative want (rule 6.4)
names only the job run that missed an input, so the wants behind that job run are added. Runs that joined later had nothing built:
the ledger has them (rule 8.1).
"""

from collections.abc import Iterable, Mapping, Sequence, Set
from typing import NamedTuple

import msgspec

from databuild_dagster.engine.engine import Engine, Outcome
from databuild_dagster.engine.why.explain import Cause, explain
from databuild_dagster.engine.why.first_failures import FirstFailure, first_failures
from databuild_dagster.model.datasets import Catalog
from databuild_dagster.model.errors import UnknownPartition
from databuild_dagster.model.fold.demands import DERIVATIVE
from databuild_dagster.model.machine import Label
from databuild_dagster.model.records import extended
from databuild_dagster.model.refs import Ref, asset_of, partition_key_of
from databuild_dagster.model.states import OPEN_WANTS, InstanceState, WantState
from databuild_dagster.store.queries.queries import Queries
from databuild_dagster.store.queries.wants import Asker, StillKept, WantFilter, WantView

#: Wants of a request whose causes are looked for.
MAX_EXPLAINED = 10


class WantReport(NamedTuple):
    """A want, and what it waits for, down to the first cause."""

    want: WantView
    #: Its refs that are not live, while it is open.
    waits_for: tuple[Ref, ...]
    causes: tuple[Cause, ...]
    #: The wants that job runs recorded for refs among the causes.
    derivative_wants: tuple[WantView, ...]


def find_wants(queries: Queries, catalog: Catalog, which: WantFilter, most: int) -> list[WantView]:
    """The newest wants of a filter, the newest first. Raises as `check_names` if there are none."""
    found = queries.wants.newest(which, most=most)
    if not found:
        check_names(queries, catalog, which)
    return found


def check_names(queries: Queries, catalog: Catalog, which: WantFilter) -> None:
    """Raises `UnknownAsset`, `UnknownPartition`, and `NotFound` for a source: a misspelled name has no wants either."""
    if which.ref is not None:
        check_partition(queries, catalog, which.ref)
    if which.asset is not None:
        queries.datasets.known(which.asset)
    if which.source is not None:
        queries.wants.check_source(which.source)


def check_partition(queries: Queries, catalog: Catalog, ref: Ref) -> None:
    """Raises `UnknownAsset`, and `UnknownPartition` for a key without an instance that is no key of the asset."""
    asset = asset_of(ref)
    dataset = queries.datasets.known(asset)
    if queries.canonical.states([ref])[ref] is None and (why := catalog.why_not(dataset, partition_key_of(ref))):
        raise UnknownPartition(ref=ref, why=why, asset=asset)


def want_reports(engine: Engine, name: str) -> tuple[list[WantView], list[WantReport]]:
    """The wants of a want id or request id, and the reports on the first of them. Raises as `IdQueries.full`."""
    wants = engine.queries.wants.known(name)
    return wants, [_report(engine, want) for want in wants[:MAX_EXPLAINED]]


def _report(engine: Engine, want: WantView) -> WantReport:
    causes = explain(engine, want.id).causes
    states = engine.queries.canonical.states(want.refs) if want.state in OPEN_WANTS else {}
    needed = {Ref(cause.ref) for cause in causes} - {want.id, *want.refs}
    waits_for = tuple(ref for ref, state in states.items() if state is not InstanceState.LIVE)
    return WantReport(want, waits_for, causes, tuple(engine.queries.wants.derivative(sorted(needed))))


#: Levels of inputs between an instance and a want that are followed.
MOST_LEVELS = 100


def who_asked(queries: Queries, uuids: Iterable[str]) -> dict[str, tuple[Asker, ...]]:
    """The wants of each instance: its own first, then the wants behind them, each once."""
    asked = list(uuids)
    found: dict[str, tuple[Asker, ...]] = {}
    behind: dict[str, Sequence[str]] = {}
    level = set(asked)
    for _ in range(MOST_LEVELS):
        found |= dict.fromkeys(level, ()) | queries.wants.askers(level)
        new = {asker.source_id for uuid in level for asker in found[uuid] if _is_derived(asker)} - behind.keys()
        job_runs = queries.job_runs.named(id_ for id_ in new if id_ is not None)
        behind |= {run.id: run.instances for run in job_runs.values()}
        level = {uuid for run_id in job_runs for uuid in behind[run_id]} - found.keys()
        if not level:
            break
    return {uuid: _all_of(uuid, found, behind) for uuid in asked}


def _is_derived(asker: Asker) -> bool:
    return asker.source == DERIVATIVE and asker.source_id is not None


def _all_of(
    uuid: str, found: Mapping[str, tuple[Asker, ...]], behind: Mapping[str, Sequence[str]]
) -> tuple[Asker, ...]:
    askers: dict[str, Asker] = {}
    left, seen = [uuid], {uuid}
    for instance in left:
        for asker in found.get(instance, ()):
            askers.setdefault(asker.want, asker)
            if _is_derived(asker):
                new = [other for other in behind.get(asker.source_id or "", ()) if other not in seen]
                left += new
                seen.update(new)
    return tuple(askers.values())


class DerivativeWant(msgspec.Struct, frozen=True):
    """A want that a job run recorded for refs that it missed."""

    id: str
    refs: Sequence[Ref]
    state: WantState


class ShownReport(msgspec.Struct, frozen=True):
    """What a want waits for, and the wants that were recorded for it."""

    waits_for: Sequence[Ref]
    causes: Sequence[Cause]
    derivative_wants: list[DerivativeWant]


def shown_report(report: WantReport) -> ShownReport:
    """The fields that `want show` adds to a want."""
    derivative_wants = [DerivativeWant(want.id, want.refs, want.state) for want in report.derivative_wants]
    return ShownReport(report.waits_for, report.causes, derivative_wants)


class RequestState(Label):
    """The state of a request, which follows from the states of its wants and is not stored (seed 001, rules 14)."""

    #: No want has begun.
    RECEIVED = "Received"
    #: Some wants have begun or ended, and at least one is open.
    EXECUTING = "Executing"
    #: Every want is successful.
    COMPLETED = "Completed"
    #: No want is open, and at least one failed.
    FAILED = "Failed"
    #: No want is open, none failed, and at least one was canceled or has expired.
    CANCELED = "Canceled"


def request_states(queries: Queries, wants: Iterable[WantView], seq: int | None = None) -> dict[str, RequestState]:
    """The state of the request of each want, by request id, when `seq` was the last event; None for now."""
    found: dict[str, set[WantState]] = {}
    for request_id, state in queries.wants.states_in_requests((want.request_id for want in wants), seq):
        found.setdefault(request_id, set()).add(state)
    return {request_id: request_state(states) for request_id, states in found.items()}


def request_state(states: Set[WantState]) -> RequestState:
    """The state of a request from the states of its wants, at least one."""
    if states <= {WantState.NEW, WantState.IDLE}:
        return RequestState.RECEIVED
    if states & OPEN_WANTS:
        return RequestState.EXECUTING
    if states & {WantState.FAILED, WantState.UPSTREAM_FAILED}:
        return RequestState.FAILED
    return RequestState.COMPLETED if states == {WantState.SUCCESSFUL} else RequestState.CANCELED


class RecordedWant(WantView, frozen=True):
    """A want that a command recorded, with the failures behind the refs of its request."""

    failed_first: Sequence[FirstFailure]
    hints: list[str]


class KeptFor(msgspec.Struct, frozen=True):
    """A ref that was kept for a canceled want, and stays wanted because of the want `want`."""

    ref: Ref
    want: str


class CanceledWant(WantView, frozen=True):
    """A want that a command canceled."""

    kept_for_others: list[KeptFor]


class Retried(msgspec.Struct, frozen=True):
    """The failures that a retry opened, and the wants that it recorded again."""

    request_id: str | None
    opened: Sequence[Ref]
    wants: list[str]


def recorded_wants(engine: Engine, wants: Sequence[WantView]) -> list[RecordedWant]:
    """The wants of a request in the shape of `want create`."""
    failures = first_failures(engine, {ref for want in wants for ref in want.refs})
    named, hints = (failures.named, failures.sentences) if failures else ((), [])
    return [extended(RecordedWant, want, failed_first=named, hints=hints) for want in wants]


class CanceledWants(NamedTuple):
    """The named wants, the wants of inputs kept for them, and the refs that stay kept for other wants."""

    wants: list[WantView]
    kept: list[WantView]
    still_kept: list[StillKept]
    #: The canceled wants, without the kept wants.
    n_canceled: int

    def shape(self) -> list[CanceledWant]:
        """In the shape of `want cancel`."""
        others: dict[str, list[KeptFor]] = {}
        for still in self.still_kept:
            others.setdefault(still.want_id, []).append(KeptFor(still.ref, still.other_want_id))
        named = [*self.wants, *self.kept]
        return [extended(CanceledWant, want, kept_for_others=others.get(want.id, [])) for want in named]


def canceled_wants(queries: Queries, ids: Sequence[str], outcome: Outcome) -> CanceledWants:
    """The outcome of canceling wants and requests."""
    wants = [want for id in ids for want in queries.wants.named(id)]
    named = {want.id for want in wants}
    kept = queries.wants.newest(WantFilter(ids=tuple(id for id in outcome.canceled_want_ids if id not in named)))
    n_canceled = len(outcome.canceled_want_ids) - len(kept)
    return CanceledWants(wants, kept, queries.wants.kept_for_others(named), n_canceled)


def retried(queries: Queries, outcome: Outcome) -> Retried:
    """The outcome of a retry in the shape of `retry`."""
    wants = [want.id for want in queries.wants.named(outcome.request_id or "")]
    return Retried(outcome.request_id, queries.instances.tainted_by(outcome.taint_id or ""), wants)
