"""A want, and a want with what it waits for, as JSON has them (rules 15)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypedDict, cast

from databuild_dagster.engine.why.want_report import WantReport
from databuild_dagster.model.refs import Ref
from databuild_dagster.shapes.explanations import CauseShape, cause_shapes
from databuild_dagster.shapes.fields import picked, when
from databuild_dagster.store.queries.wants import WantView


class WantShape(TypedDict):
    """One want."""

    id: str
    request_id: str
    refs: Sequence[Ref]
    state: str
    source: str
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


_FIELDS = (
    "id", "request_id", "refs", "state", "source", "source_id", "priority", "created_at", "expires_at", "comment",
    "data_timestamp", "deadline", "sla_missed_at", "fail_fast", "actor",
)  # fmt: skip


def want_shape(want: WantView) -> WantShape:
    """A want in the shape of `want list`."""
    times = {"data_timestamp": when(want.data_timestamp), "deadline": when(want.deadline)}
    return cast("WantShape", picked(want, *_FIELDS) | times)


def want_report_shape(report: WantReport) -> WantReportShape:
    """The fields that `want show` adds to a want."""
    derivative_wants = [picked(want, "id", "refs", "state") for want in report.derivative_wants]
    return {
        "waits_for": report.waits_for,
        "causes": cause_shapes(report.causes),
        "derivative_wants": cast("list[DerivativeWant]", derivative_wants),
    }
