"""Operations as JSON has them (rules 9, 15).

A report may hold rows of the data, and values that the author of its type chose. Pages get its numbers, its rules and the
partitions that break them: no row and no other text.
"""

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Final

import msgspec

from databuild_dagster.features.operations.seen import OperationView
from databuild_dagster.model.operations.keys import OperationId
from databuild_dagster.model.operations.records import FollowUp, Trouble
from databuild_dagster.model.operations.states import OperationState
from databuild_dagster.model.records import Column, Time, extended, time_of
from databuild_dagster.model.refs import Ref

#: Rules of a report, the partitions of each, and its other numbers.
MAX_RULES: Final = 100
MAX_OFFENDING: Final = 50
MAX_NUMBERS: Final = 50


class ShownTrouble(msgspec.Struct, frozen=True):
    """A failed attempt that is retried."""

    error: str
    attempts: int
    next_at: Time


class ShownOperation(msgspec.Struct, frozen=True):
    """An operation, running or ended. `failed` counts jobs; `completion` is the trouble of its completion."""

    id: Annotated[str, Column("operation")]
    type: str
    dataset: str
    state: Annotated[OperationState, Column()]
    done: Annotated[int, Column()]
    failed: Annotated[int, Column()]
    total: Annotated[int, Column()]
    problem: str | None = None
    started_at: Annotated[Time | None, Column("started")] = None
    ended_at: Annotated[Time | None, Column("ended")] = None
    completion: ShownTrouble | None = None
    follow_ups: Sequence[FollowUp] = msgspec.field(default_factory=list)


class Offending(msgspec.Struct, frozen=True):
    """A partition with rows that break a rule."""

    ref: str
    offending: int


class ShownRule(msgspec.Struct, frozen=True):
    """A rule of `validate` with the number of rows that break it, and the first partitions with such rows."""

    rule: str
    offending: int
    n_partitions: int
    partitions: list[Offending]


class ShownReport(msgspec.Struct, frozen=True):
    """The report of a completion without rows of data; a list in it is its length in `numbers`."""

    ok: bool | None
    rules: list[ShownRule]
    numbers: dict[str, float]


def shown_operation(view: OperationView) -> ShownOperation:
    """An operation in the shape of `operation list`."""
    return ShownOperation(
        *(str(view.id), view.id.type, view.id.dataset, view.state, view.done, len(view.failed), view.total),
        view.problem,
        time_of(view.started_at),
        time_of(view.ended_at),
        shown_trouble(view.trouble),
        view.follow_ups,
    )


def shown_trouble(trouble: Trouble | None) -> ShownTrouble | None:
    """A trouble without its own time."""
    return None if trouble is None else ShownTrouble(trouble.error, trouble.attempts, Time(trouble.next_at))


def report_shape(report: Any) -> ShownReport | None:
    """The report of a completion; None for a report without anything that may be shown."""
    if not isinstance(report, Mapping):
        return None
    found = ShownReport(ok if isinstance(ok := report.get("ok"), bool) else None, _rules(report.get("rules")), {})
    for name, value in report.items():
        number = _number(value)
        if number is not None and name not in ("ok", "rules") and len(found.numbers) < MAX_NUMBERS:
            found.numbers[str(name)[:100]] = number
    return found if found.ok is not None or found.rules or found.numbers else None


def _number(value: Any) -> float | None:
    if isinstance(value, list | tuple | Mapping):
        return len(value)
    return value if isinstance(value, int | float) and not isinstance(value, bool) else None


def _rules(rules: Any) -> list[ShownRule]:
    found = [_rule(rule) for rule in rules if isinstance(rule, Mapping)] if isinstance(rules, list) else []
    return [rule for rule in found if rule is not None][:MAX_RULES]


def _rule(rule: Mapping[str, Any]) -> ShownRule | None:
    """None for a rule of a type whose author means something else by it."""
    text, offending, partitions = rule.get("rule"), rule.get("offending"), rule.get("partitions")
    if not isinstance(text, str) or not isinstance(offending, int):
        return None
    named = [
        Offending(found["ref"], found["offending"])
        for found in (partitions if isinstance(partitions, list) else ())
        if isinstance(found, Mapping) and isinstance(found.get("ref"), str) and isinstance(found.get("offending"), int)
    ]
    n_partitions = rule.get("n_partitions")
    n = n_partitions if isinstance(n_partitions, int) else len(named)
    return ShownRule(text, offending, n, named[:MAX_OFFENDING])


def error_of(detail: Any) -> str:
    """The error of a failed job; any other detail is a value of the author's."""
    if isinstance(detail, Mapping) and isinstance(detail.get("error"), str):
        return str(detail["error"])
    return "" if detail is None else "its detail is in `databuild operation show`"


def ref_of(id: OperationId, partition: str) -> Ref:
    """The ref of a partition of an operation."""
    return Ref(str(id.ref(partition)))


class CanceledOperation(ShownOperation, frozen=True):
    """An operation; `canceled` is false if it had ended before."""

    canceled: bool = False


class StartedOperation(msgspec.Struct, frozen=True):
    """An operation that was started."""

    operation: str
    state: str


def canceled_operation(view: OperationView, *, canceled: bool) -> CanceledOperation:
    """An operation in the shape of `operation cancel`."""
    return extended(CanceledOperation, shown_operation(view), canceled=canceled)
