"""Gates: checks that a new instance has to pass before it is live.

A check is a function from the new rows to a verdict. It runs on written rows that readers do not see yet. An instance that
does not pass never becomes live: its job run fails, and its files are kept under a partial manifest for inspection. Each
verdict is reported to Dagster as an asset check.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from dagster import AssetCheckResult, AssetCheckSeverity

from databuild_dagster.bindings.declare.outcomes import BadResult, storable
from databuild_dagster.bindings.declare.parameters import (
    InvalidAsset,
    Parameter,
    ParameterKind,
    Returns,
    kind_of,
    parameters_of,
)
from databuild_dagster.model.refs import PARTITION_KEY
from databuild_dagster.model.wording import utf8
from databuild_dagster.spark.memory_frames import FrameKind, column_names, from_arrow, to_arrow

_ALLOWED = (*(kind for kind in ParameterKind if kind.is_input), ParameterKind.CONTEXT, ParameterKind.SPARK_SESSION)


@dataclass(frozen=True, slots=True)
class Gate:
    """A blocking check of an output."""

    name: str
    description: str | None
    function: Callable[..., Any]
    parameters: tuple[Parameter, ...]


@dataclass(frozen=True, slots=True)
class Verdict:
    """The verdict of a gate on an instance."""

    gate: str
    passed: bool
    #: The reason if it did not pass.
    why: str = ""
    #: A failure of severity WARN is shown and does not block.
    is_warning: bool = False
    metadata: Mapping[str, Any] = field(default_factory=dict)

    @property
    def blocks(self) -> bool:
        return not self.passed and not self.is_warning


class GateClosed(Exception):
    """A blocking check did not pass; the message names the check and the reason."""


def gates_of(
    asset_name: str, functions: Iterable[Callable[..., Any]], local_names: Mapping[str, Any]
) -> tuple[Gate, ...]:
    """The blocking checks of an asset. Raises `InvalidAsset`."""
    gates = tuple(_gate(asset_name, function, local_names) for function in functions)
    names = [gate.name for gate in gates]
    if twice := sorted({name for name in names if names.count(name) > 1}):
        raise InvalidAsset(f"Asset {asset_name!r} has two blocking checks called {twice[0]!r}; rename one.")
    return gates


def verdict_of(
    gate: Gate, answer: Any, keys: Sequence[str | None], *, is_batched: bool
) -> Verdict | dict[str | None, Verdict]:
    """The verdict of a gate's result: the same on all partitions that it has checked, or a verdict per key.

    A frame has the wrong rows, and passes without rows. In a batch its column `partition_key` has their partitions.
    Raises `BadResult`, `InvalidMetadata`.
    """
    match answer:
        case bool():
            return Verdict(gate.name, answer, "" if answer else "it returned False")
        case AssetCheckResult():
            is_warning = answer.severity is AssetCheckSeverity.WARN
            why = "" if answer.passed else utf8(answer.description or "it did not pass")
            metadata = storable(answer.metadata or {}, f"check {gate.name}")
            return Verdict(gate.name, bool(answer.passed), why, is_warning, metadata)
        case _ if type(answer).__module__ == "numpy" and type(answer).__name__.startswith("bool"):
            return verdict_of(gate, bool(answer), keys, is_batched=is_batched)
        case _ if (kind := kind_of(type(answer))) is not None and kind.is_input:
            counts = _wrong_rows(gate, answer, keys, is_batched, kind.frame)
            if unknown := [key for key in counts if key not in keys]:
                raise BadResult(
                    f"Check {gate.name!r} returned wrong rows of {unknown[0]!r}, a partition that it does not check; "
                    f"leave the column {PARTITION_KEY} as it is."
                )
            return {key: _of_count(gate, counts.get(key, 0)) for key in keys}
        case _:
            raise BadResult(
                f"Check {gate.name!r} returned {described(answer)}; "
                "return a bool, an AssetCheckResult, or a DataFrame of the rows that are wrong."
            )


def described(result: Any) -> str:
    """A function's result, for an error message."""
    return "nothing (None)" if result is None else f"a {type(result).__module__}.{type(result).__qualname__}"


def _gate(asset_name: str, function: Callable[..., Any], local_names: Mapping[str, Any]) -> Gate:
    if not hasattr(function, "__name__"):
        raise InvalidAsset(
            f"Asset {asset_name!r}: blocking_checks has {function!r}, which is not a function; give functions."
        )
    parameters = parameters_of(function, local_names, Returns.VERDICT)
    for parameter in parameters:
        if parameter.kind not in _ALLOWED:
            raise InvalidAsset(
                f"Parameter {parameter.name!r} of check {function.__name__!r} is a {parameter.kind.value}; "
                "a blocking check takes the new rows as one DataFrame, and optionally a BuildContext or SparkSession."
            )
    if sum(parameter.kind.is_input for parameter in parameters) != 1:
        raise InvalidAsset(
            f"Check {function.__name__!r} of asset {asset_name!r} must have exactly one DataFrame parameter: the new rows."
        )
    return Gate(function.__name__, function.__doc__, function, parameters)


def _wrong_rows(
    gate: Gate, rows: Any, keys: Sequence[str | None], is_batched: bool, kind: FrameKind | None
) -> dict[str | None, int]:
    if not is_batched:
        return dict.fromkeys(keys, rows.count() if kind is FrameKind.SPARK else len(rows))
    if PARTITION_KEY not in column_names(rows):
        raise BadResult(
            f"Check {gate.name!r} returned rows without the column {PARTITION_KEY}; leave that column in the rows."
        )
    if kind is not FrameKind.SPARK:
        counts = from_arrow(to_arrow(rows), FrameKind.PANDAS).groupby(PARTITION_KEY, dropna=False, observed=True).size()
        # The null of pandas is a number that is not equal to itself.
        return {key if key == key else None: int(count) for key, count in counts.items()}
    return {row[0]: row[1] for row in rows.groupBy(PARTITION_KEY).count().collect()}


def _of_count(gate: Gate, n_wrong: int) -> Verdict:
    why = "1 row is wrong" if n_wrong == 1 else f"{n_wrong} rows are wrong"
    return Verdict(gate.name, not n_wrong, why if n_wrong else "", metadata={"databuild/wrong_rows": n_wrong})
