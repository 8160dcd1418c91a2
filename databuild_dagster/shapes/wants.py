"""Wants as JSON has them: a want, what it waits for, what a command did to wants, the answer of `explain` (rules 15)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence, Set
from typing import NamedTuple

import msgspec

from databuild_dagster.engine.engine import Engine, Outcome
from databuild_dagster.engine.why.explain import Cause
from databuild_dagster.engine.why.first_failures import FirstFailure, first_failures
from databuild_dagster.engine.why.want_report import WantReport
from databuild_dagster.model.machine import Label
from databuild_dagster.model.refs import Ref
from databuild_dagster.model.states import OPEN_WANTS, WantState
from databuild_dagster.shapes.fields import extended
from databuild_dagster.store.queries.queries import Queries
from databuild_dagster.store.queries.wants import StillKept, WantFilter, WantView


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
