"""Operations that a command started or canceled, as JSON has them (rules 15, 9.7)."""

from __future__ import annotations

from typing import Final, TypedDict, cast

from databuild_dagster.engine.operations.seen import OperationView
from databuild_dagster.shapes.fields import picked

#: The fields of a retry.
RETRY: Final = ("error", "attempts", "next_at")


class RetryShape(TypedDict):
    """A failed attempt, and the time of the next one."""

    error: str
    attempts: int
    next_at: str


class FollowUpShape(TypedDict):
    """An operation that the completion of another one asked to start."""

    type: str
    dataset: str
    operation: str | None
    refused: str


class OperationShape(TypedDict):
    """One operation, running or ended."""

    id: str
    type: str
    dataset: str
    state: str
    done: int
    total: int
    problem: str | None
    started_at: str | None
    ended_at: str | None
    failed: int
    completion: RetryShape | None
    follow_ups: list[FollowUpShape]


class CanceledOperationShape(OperationShape):
    """An operation; `canceled` is false if it had ended before."""

    canceled: bool


class StartedOperationShape(TypedDict):
    """An operation that was started."""

    operation: str
    state: str


def operation_shape(view: OperationView) -> OperationShape:
    """An operation in the shape of `operation list`."""
    follow_ups = [picked(follow_up, "type", "dataset", "operation", "refused") for follow_up in view.follow_ups]
    found = {
        "id": str(view.id),
        **picked(view.id, "type", "dataset"),
        **picked(view, "state", "done", "total", "problem", "started_at", "ended_at"),
        "failed": len(view.failed),
        "completion": None if view.trouble is None else picked(view.trouble, *RETRY),
        "follow_ups": follow_ups,
    }
    return cast("OperationShape", found)


def canceled_operation(view: OperationView, *, canceled: bool) -> CanceledOperationShape:
    """An operation in the shape of `operation cancel`."""
    return {**operation_shape(view), "canceled": canceled}
