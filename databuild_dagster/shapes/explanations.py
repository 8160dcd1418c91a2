"""The answer of `explain` as JSON has it (rules 15)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NotRequired, TypedDict, cast

from databuild_dagster.engine.why.explain import Cause, Explanation
from databuild_dagster.shapes.fields import picked


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
    return cast("list[CauseShape]", [picked(cause, "ref", "why", "depth") for cause in causes])


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
