"""Dagster's own results, `Output` and `MaterializeResult`, as functions written for `@asset` return them: a frame with metadata."""

from collections.abc import Mapping
from typing import Any

from dagster import MaterializeResult, Output

from databuild_dagster.bindings.declare.build_context import BuildContext
from databuild_dagster.bindings.declare.outcomes import BadResult
from databuild_dagster.bindings.declare.parameters import STAYS_PLAIN

#: What these results may have besides, and what to write instead.
REFUSED_PARTS: Mapping[str, str] = {
    "data_version": "databuild gives each instance an identity of its own; leave it out",
    "tags": "give tags= to the decorator",
    "check_results": "write a separate @asset_check, or give blocking_checks= to the decorator",
}


def unwrapped(answer: Any, job: str, context: BuildContext) -> Any:
    """What a function returned, with the frame in place of Dagster's result around it; its metadata go to the materialization.

    A multi-asset's dict may have one for each output. Raises `BadResult` for a part of the result that has no meaning here.
    """
    if not isinstance(answer, Mapping):
        return _frame_of(answer, job, context, None)
    return {name: _frame_of(value, job, context, name) for name, value in answer.items()}


def _frame_of(value: Any, job: str, context: BuildContext, output_name: str | None) -> Any:
    if not isinstance(value, (Output, MaterializeResult)):
        return value
    kind = type(value).__name__
    for name, instead in REFUSED_PARTS.items():
        if getattr(value, name, None):
            raise BadResult(f"{job} returned dagster.{kind} with {name}=; {instead}.")
    if isinstance(value, MaterializeResult) and not _has_value(value):
        raise BadResult(
            f"{job} returned dagster.MaterializeResult without a value; give it the frame, as in "
            f"MaterializeResult(value=frame, metadata=…), or return the frame.{STAYS_PLAIN}"
        )
    if value.metadata:
        context.add_output_metadata(value.metadata, output_name=output_name)
    return value.value


def _has_value(result: MaterializeResult[Any]) -> bool:
    """Dagster marks a result without a value by a class of its own."""
    return getattr(getattr(result, "value", None), "__name__", None) != "NoValueSentinel"
