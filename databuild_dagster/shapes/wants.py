"""Wants as JSON has them: one, what it waits for, what a command did to wants, and the answer of `explain` (rules 15)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence, Set
from typing import NamedTuple, NotRequired, TypedDict

from databuild_dagster.engine.engine import Engine, Outcome
from databuild_dagster.engine.why.explain import Cause, Explanation
from databuild_dagster.engine.why.first_failures import first_failures
from databuild_dagster.engine.why.want_report import WantReport
from databuild_dagster.model.machine import Label
from databuild_dagster.model.refs import Ref
from databuild_dagster.model.states import OPEN_WANTS, WantState
from databuild_dagster.shapes.fields import shaped, when
from databuild_dagster.store.queries.queries import Queries
from databuild_dagster.store.queries.wants import StillKept, WantFilter, WantView


class CauseShape(TypedDict):
    """One step on the way to the first cause; the causes of a cause follow it, one deeper."""

    ref: str
    why: str
    depth: int


class ExplanationShape(TypedDict):
    """Why a ref, or the refs of a want or request, are or are not being built."""

    ref: str
    state: str | None
    causes: list[CauseShape]
    #: Of a want or request: the number of wants in each state.
    wants: NotRequired[dict[str, int]]


def cause_shapes(causes: Iterable[Cause]) -> list[CauseShape]:
    """Causes in their order."""
    return [shaped(CauseShape, cause) for cause in causes]


def explanation_shape(explanation: Explanation) -> ExplanationShape:
    """An explanation in the shape of `explain`."""
    answer: ExplanationShape = {
        "ref": explanation.ref,
        "state": explanation.state,
        "causes": cause_shapes(explanation.causes),
    }
    if explanation.wants is not None:
        answer["wants"] = explanation.wants
    return answer


class WantShape(TypedDict):
    """One want."""

    id: str
    request_id: str
    refs: Sequence[Ref]
    state: str
    #: What kind of requester recorded it: user, schedule, sensor, arc, job run, dagster run, or the word of a caller.
    source: str
    #: Which one: the name of the schedule or sensor, the instance that woke the arc, or the id of the run.
    source_id: str | None
    priority: int
    created_at: str
    expires_at: str | None
    comment: str
    data_timestamp: str | None
    deadline: str | None
    sla_missed_at: str | None
    fail_fast: bool
    #: Who or what recorded it.
    actor: str


class DerivativeWant(TypedDict):
    """A want that a job run recorded for refs that it missed."""

    id: str
    refs: Sequence[Ref]
    state: str


class WantReportShape(TypedDict):
    """What a want waits for, and the wants that were recorded for it."""

    waits_for: Sequence[Ref]
    causes: list[CauseShape]
    derivative_wants: list[DerivativeWant]


def want_shape(want: WantView) -> WantShape:
    """A want in the shape of `want list`."""
    return shaped(WantShape, want, data_timestamp=when(want.data_timestamp), deadline=when(want.deadline))


def want_report_shape(report: WantReport) -> WantReportShape:
    """The fields that `want show` adds to a want."""
    return {
        "waits_for": report.waits_for,
        "causes": cause_shapes(report.causes),
        "derivative_wants": [shaped(DerivativeWant, want) for want in report.derivative_wants],
    }


class RequestState(Label):
    """The state of a request, which follows from the states of its wants and is not stored (seed 001, rules 14)."""

    #: No want has begun.
    RECEIVED = "Received"
    #: Some wants have begun or ended, and one is open.
    EXECUTING = "Executing"
    #: Every want is successful.
    COMPLETED = "Completed"
    #: No want is open, and one failed.
    FAILED = "Failed"
    #: No want is open, none failed, and one was canceled or has expired.
    CANCELED = "Canceled"


def request_states(queries: Queries, wants: Iterable[WantView], seq: int | None = None) -> dict[str, RequestState]:
    """The state of the request of each want, by request id, when `seq` was the last event; None for now."""
    found: dict[str, set[WantState]] = {}
    for request_id, state in queries.states_in_requests((want.request_id for want in wants), seq):
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


class FirstFailureShape(TypedDict):
    """A ref that failed by itself, and how many wait for it."""

    ref: Ref
    why: str
    n_waiting: int


class RecordedWantShape(WantShape):
    """A want that a command recorded, with the failures behind the refs of its request."""

    failed_first: list[FirstFailureShape]
    hints: list[str]


class KeptForShape(TypedDict):
    """A ref that was kept for a canceled want, and stays wanted for another one."""

    ref: Ref
    want: str


class CanceledWantShape(WantShape):
    """A want that a command canceled."""

    kept_for_others: list[KeptForShape]


class RetriedShape(TypedDict):
    """The failures that a retry opened, and the wants that it recorded again."""

    request_id: str | None
    opened: list[Ref]
    wants: list[str]


def recorded_wants(engine: Engine, wants: Sequence[WantView]) -> list[RecordedWantShape]:
    """The wants of one request in the shape of `want create`."""
    failures = first_failures(engine, {ref for want in wants for ref in want.refs})
    named = [shaped(FirstFailureShape, failure) for failure in failures.named] if failures else []
    hints = failures.sentences if failures else []
    return [{**want_shape(want), "failed_first": named, "hints": hints} for want in wants]


class CanceledWants(NamedTuple):
    """The wants that were named, those of inputs that were kept for them, and what stays kept for others."""

    wants: list[WantView]
    kept: list[WantView]
    still_kept: list[StillKept]
    #: The wants that were canceled, without those that were kept.
    n_canceled: int

    def shape(self) -> list[CanceledWantShape]:
        """In the shape of `want cancel`."""
        others: dict[str, list[KeptForShape]] = {}
        for still in self.still_kept:
            others.setdefault(still.want_id, []).append({"ref": still.ref, "want": still.other_want_id})
        return [{**want_shape(want), "kept_for_others": others.get(want.id, [])} for want in [*self.wants, *self.kept]]


def canceled_wants(queries: Queries, ids: Sequence[str], outcome: Outcome) -> CanceledWants:
    """The outcome of canceling wants and requests."""
    wants = [want for id in ids for want in queries.wants_named(id)]
    named = {want.id for want in wants}
    kept = queries.wants(WantFilter(ids=tuple(id for id in outcome.canceled_want_ids if id not in named)))
    n_canceled = len(outcome.canceled_want_ids) - len(kept)
    return CanceledWants(wants, kept, queries.kept_for_others(named), n_canceled)


def retried(queries: Queries, outcome: Outcome) -> RetriedShape:
    """The outcome of a retry in the shape of `retry`."""
    return {
        "request_id": outcome.request_id,
        "opened": list(queries.tainted_by(outcome.taint_id or "")),
        "wants": [want.id for want in queries.wants_named(outcome.request_id or "")],
    }
