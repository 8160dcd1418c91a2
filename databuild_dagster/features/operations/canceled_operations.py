"""Operations that a command started or canceled, as JSON has them (rules 15, 9.7)."""

from __future__ import annotations

from typing import TypedDict

from databuild_dagster.features.operations.seen import OperationView
from databuild_dagster.features.operations.shapes import OperationShape, operation_shape


class CanceledOperationShape(OperationShape):
    """An operation; `canceled` is false if it had ended before."""

    canceled: bool


class StartedOperationShape(TypedDict):
    """An operation that was started."""

    operation: str
    state: str


def canceled_operation(view: OperationView, *, canceled: bool) -> CanceledOperationShape:
    """An operation in the shape of `operation cancel`."""
    return {**operation_shape(view), "canceled": canceled}
