"""Rules for the start of an operation: running operations beside it, its partitions, its name (rules 9.3, 9.4)."""

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from databuild_dagster.model.errors import InvalidOperation, InvalidRequest
from databuild_dagster.model.meta_storage import MAX_VALUE_BYTES
from databuild_dagster.model.operations.keys import OperationId
from databuild_dagster.model.operations.records import to_bytes
from databuild_dagster.model.wording import few_of


class TypeRule(NamedTuple):
    """The compatibility of a type."""

    name: str
    #: Several may run on a dataset at once.
    many: bool
    #: Types that may not run beside it.
    apart_from: frozenset[str] = frozenset()


class Beside(NamedTuple):
    """A row: facts about a running operation and a starting operation, None for any, and the verdict."""

    #: Both are of the same type.
    same_type: bool
    #: Several of the starting type may run on a dataset at once.
    many: bool | None
    #: They are about the same object.
    same_object: bool | None
    #: The two types may not run beside each other.
    apart: bool | None
    #: The reason why it may not start; None if it may.
    why: str | None

    def fits(self, *facts: bool) -> bool:
        return all(asked is None or asked is fact for asked, fact in zip(self[:4], facts, strict=True))


#: Exactly one row fits any two operations (rule 9.4).
BESIDE = (
    Beside(True, False, None, None, "{running} runs, and only one of its type may at a time"),
    Beside(True, True, True, None, "{running} runs on the same object: {object}"),
    Beside(True, True, False, None, None),
    Beside(False, None, None, True, "{running} runs, and the two may not run at the same time"),
    Beside(False, None, None, False, None),
)


def why_incompatible(
    starting: TypeRule, object_id: str | None, running: Sequence[OperationId], rules: Mapping[str, TypeRule]
) -> str | None:
    """The reason why an operation may not start beside the running operations, by `BESIDE`; None if it may."""
    for operation in running:
        other = rules.get(operation.type)
        facts = (
            operation.type == starting.name,
            starting.many,
            object_id is not None and operation.object == object_id,
            operation.type in starting.apart_from or (other is not None and starting.name in other.apart_from),
        )
        (row,) = (row for row in BESIDE if row.fits(*facts))
        if row.why is not None:
            return row.why.format(running=operation, object=object_id)
    return None


def check_partitions(
    dataset: str, type_name: str, live: Mapping[str, str | None], named: Iterable[str] | None
) -> dict[str, str | None]:
    """The partitions of an operation, with their instances. Raises `InvalidOperation`."""
    chosen = dict(live) if named is None else {key: live.get(key) for key in named}
    if why := _why_not(chosen, live, is_named=named is not None):
        raise InvalidOperation(type_name=type_name, dataset=dataset, why=why)
    return chosen


def _why_not(chosen: Mapping[str, str | None], live: Mapping[str, str | None], *, is_named: bool) -> str | None:
    """The reason why an operation cannot be on the chosen partitions; None if it can."""
    if not chosen:
        return "no partition is named" if is_named else "it has no live partition"
    if others := [key for key in chosen if key not in live]:
        return f"not live: {few_of(others)}"
    n_bytes = len(to_bytes(chosen))
    if n_bytes > MAX_VALUE_BYTES:
        most = len(chosen) * MAX_VALUE_BYTES // n_bytes
        return f"{len(chosen):,} partitions are too many, about {most:,} are possible; name a part of them"
    return None


def check_name(what: str, name: str) -> str:
    """The name of a type or an object. Raises `InvalidRequest`."""
    if not name or len(name) > 200 or not name.isprintable():
        raise InvalidRequest(what=what, value=name, why="it must be a printable text of 1 to 200 letters")
    return name
