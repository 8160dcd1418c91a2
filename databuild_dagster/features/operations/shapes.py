"""Operations as JSON has them (rules 9, 15).

A report may hold rows of the data, and values that the author of its type chose. Pages get its numbers, its rules and the
partitions that break them: no row and no other text.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final, TypedDict, cast

from databuild_dagster.features.operations.seen import OperationView
from databuild_dagster.model.operations.keys import OperationId
from databuild_dagster.model.operations.records import FollowUp, Trouble
from databuild_dagster.model.operations.states import OperationState
from databuild_dagster.model.refs import Ref
from databuild_dagster.shapes.fields import picked, when

#: Rules of a report, the partitions of each, and its other numbers.
MAX_RULES: Final = 100
MAX_OFFENDING: Final = 50
MAX_NUMBERS: Final = 50


class TroubleShape(TypedDict):
    """A failed attempt that is retried."""

    error: str
    attempts: int
    next_at: str


class FollowUpShape(TypedDict):
    """An operation that a completion asked to start; `operation` is its id once it was started, `refused` why it was not."""

    type: str
    dataset: str
    operation: str | None
    refused: str


class OperationShape(TypedDict):
    """One operation, running or ended. `failed` counts jobs; `completion` is the trouble of its completion."""

    id: str
    type: str
    dataset: str
    state: str
    done: int
    failed: int
    total: int
    problem: str | None
    started_at: str | None
    ended_at: str | None
    completion: TroubleShape | None
    follow_ups: list[FollowUpShape]


class OffendingShape(TypedDict):
    """A partition with rows that break a rule."""

    ref: str
    offending: int


class RuleShape(TypedDict):
    """A rule of `validate` with the number of rows that break it, and the first partitions with such rows."""

    rule: str
    offending: int
    n_partitions: int
    partitions: list[OffendingShape]


class ReportShape(TypedDict):
    """The report of a completion without rows of data; a list in it is its length in `numbers`."""

    ok: bool | None
    rules: list[RuleShape]
    numbers: dict[str, float]


def operation_shape(view: OperationView) -> OperationShape:
    """An operation in the shape of `operation list`."""
    shape = shape_of(view.id, view.state, done=view.done, failed=len(view.failed), total=view.total)
    shape["problem"] = view.problem
    shape["started_at"], shape["ended_at"] = when(view.started_at), when(view.ended_at)
    shape["completion"] = None if view.trouble is None else trouble_shape(view.trouble)
    shape["follow_ups"] = follow_up_shapes(view.follow_ups)
    return shape


def shape_of(id: OperationId, state: OperationState, *, done: int, failed: int, total: int) -> OperationShape:
    """An operation by its counts, without a problem, times and follow-ups."""
    return {
        "id": str(id),
        "type": id.type,
        "dataset": id.dataset,
        "state": state.value,
        "done": done,
        "failed": failed,
        "total": total,
        "problem": None,
        "started_at": None,
        "ended_at": None,
        "completion": None,
        "follow_ups": [],
    }


def trouble_shape(trouble: Trouble) -> TroubleShape:
    """A trouble without its own time."""
    return cast("TroubleShape", picked(trouble, "error", "attempts", "next_at"))


def follow_up_shapes(follow_ups: Iterable[FollowUp]) -> list[FollowUpShape]:
    """Follow-ups in their order."""
    found = [picked(follow_up, "type", "dataset", "operation", "refused") for follow_up in follow_ups]
    return cast("list[FollowUpShape]", found)


def report_shape(report: Any) -> ReportShape | None:
    """The report of a completion; None for one without anything that may be shown."""
    if not isinstance(report, Mapping):
        return None
    found: ReportShape = {
        "ok": report.get("ok") if isinstance(report.get("ok"), bool) else None,
        "rules": _rules(report.get("rules")),
        "numbers": {},
    }
    for name, value in report.items():
        number = _number(value)
        if number is not None and name not in ("ok", "rules") and len(found["numbers"]) < MAX_NUMBERS:
            found["numbers"][str(name)[:100]] = number
    return found if found["ok"] is not None or found["rules"] or found["numbers"] else None


def _number(value: Any) -> float | None:
    if isinstance(value, list | tuple | Mapping):
        return len(value)
    return value if isinstance(value, int | float) and not isinstance(value, bool) else None


def _rules(rules: Any) -> list[RuleShape]:
    found = [_rule(rule) for rule in rules if isinstance(rule, Mapping)] if isinstance(rules, list) else []
    return [rule for rule in found if rule is not None][:MAX_RULES]


def _rule(rule: Mapping[str, Any]) -> RuleShape | None:
    """None for a rule of a type whose author means something else by it."""
    text, offending, partitions = rule.get("rule"), rule.get("offending"), rule.get("partitions")
    if not isinstance(text, str) or not isinstance(offending, int):
        return None
    named: list[OffendingShape] = [
        {"ref": found["ref"], "offending": found["offending"]}
        for found in (partitions if isinstance(partitions, list) else ())
        if isinstance(found, Mapping) and isinstance(found.get("ref"), str) and isinstance(found.get("offending"), int)
    ]
    n_partitions = rule.get("n_partitions")
    return {
        "rule": text,
        "offending": offending,
        "n_partitions": n_partitions if isinstance(n_partitions, int) else len(named),
        "partitions": named[:MAX_OFFENDING],
    }


def error_of(detail: Any) -> str:
    """The error of a failed job; another detail is a value of the author's."""
    if isinstance(detail, Mapping) and isinstance(detail.get("error"), str):
        return str(detail["error"])
    return "" if detail is None else "its detail is in `databuild operation show`"


def ref_of(id: OperationId, partition: str) -> Ref:
    """The ref of a partition of an operation."""
    return Ref(str(id.ref(partition)))


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
