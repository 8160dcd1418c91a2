"""The page Plan: all questions share a form, and all answers share a layout.

The questions and the effects come from the rows of the API (`PlanQuestions`): what a build does is the core's question.
"""

from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any, Final, NamedTuple

from databuild_dagster.engine.why.preview import Action
from databuild_dagster.model.errors import DatabuildError
from databuild_dagster.model.records import error_as_json
from databuild_dagster.model.wording import typed
from databuild_dagster.web.api import routes
from databuild_dagster.web.parameters import Parameter, choice, number, text
from databuild_dagster.web.plans import names_in
from databuild_dagster.web.refusals import names_a_place
from databuild_dagster.web.routes import Ask, EffectOnPage, PlanQuestion, PlanQuestions, Switch

#: Rows on a page, and bars in its drawing.
MAX_ROWS: Final = 200
MAX_BARS: Final = 40
_WIDTH: Final = 1_000
_ROW: Final = 26
#: The least width of a bar that can be seen.
_LEAST: Final = 3.0


class Bar(NamedTuple):
    """A stage as a bar over time; places are in units of the drawing."""

    y: int
    x: float
    width: float
    label: str
    title: str
    is_joined: bool


class Drawing(NamedTuple):
    """The stages over time."""

    width: int
    height: int
    bars: list[Bar]
    n_left_out: int


class _Asked(NamedTuple):
    """A question with the url that answers it."""

    route: str
    of_route: PlanQuestions
    question: PlanQuestion


@cache
def _questions() -> dict[str, _Asked]:
    """By name; the question of the core comes first."""
    return {
        question.name: _Asked(route.path.removeprefix("/"), route.plan, question)
        for route in routes()
        if route.plan is not None
        for question in route.plan.questions
    }


@cache
def _effects() -> dict[str, EffectOnPage]:
    asked = _questions().values()
    return {effect.name: effect for found in asked for effect in found.of_route.effects}


@cache
def _switches() -> dict[str, Switch]:
    asked = _questions().values()
    return {switch.parameter.name: switch for found in asked for switch in found.question.switches}


@cache
def parameters() -> tuple[Parameter, ...]:
    """The parameters of the page."""
    return (
        text("ref", "Partitions, ranges, or the name of an asset."),
        choice("what", "The question.", list(_questions())),
        *(switch.parameter for switch in _switches().values()),
        choice("only", "Only partitions with this effect.", list(_effects())),
        number("offset", "The number of rows before the first.", 0, 0, 1_000_000),
    )


def show(ask: Ask, values: dict[str, Any]) -> dict[str, Any]:
    """The values of the template."""
    what = values["what"] or next(iter(_questions()))
    switched = {name: values[name] for name in _switches()}
    shown: dict[str, Any] = {
        "values": {**values, "what": what},
        "questions": [found.question for found in _questions().values()],
        "switches": list(_switches().values()),
        "query": {"ref": values["ref"], "what": what, **switched},
        "mark_of": {name: effect.mark for name, effect in _effects().items()},
        "words": {name: effect.words for name, effect in _effects().items()},
        "found": None,
        "error": None,
    }
    if not values["ref"]:
        return shown
    asked = _questions()[what]
    on = {switch.parameter.name: values[switch.parameter.name] for switch in asked.question.switches}
    try:
        found = ask(asked.route, ref=values["ref"], **asked.question.values, **on)
    except DatabuildError as error:
        if names_a_place(error):
            raise
        return {**shown, "error": error_as_json(error)}
    # The sort is stable: partitions that need nothing come last.
    rows = sorted(asked.of_route.rows(found), key=lambda row: row.effect == Action.REUSE)
    chosen = [row for row in rows if values["only"] in (None, row.effect)]
    offset = values["offset"]
    counts = {effect: n for effect in _effects() if (n := sum(row.effect == effect for row in rows))}
    return {
        **shown,
        "found": found,
        "rows": chosen[offset : offset + MAX_ROWS],
        "n_rows": len(chosen),
        "counts": counts,
        "drawing": drawn(found["stages"]),
        "command": _command(asked.question, values["ref"], on),
        "most": MAX_ROWS,
    }


def _command(question: PlanQuestion, refs: str, on: Mapping[str, bool]) -> str:
    """The same question on the command line."""
    options = "".join(f" --{name}" for name, is_on in on.items() if is_on)
    return f"{question.command.removeprefix('databuild ')}{options} {typed(*names_in(refs))}"


def drawn(stages: Sequence[dict[str, Any]]) -> Drawing:
    """The stages over time; a stage without a history is a bar of the least width."""
    shown = stages[:MAX_BARS]
    first = min((stage["begins_after"] for stage in shown), default=0.0)
    last = max((stage["begins_after"] + (stage["seconds"] or 0.0) for stage in shown), default=0.0)
    scale = (_WIDTH - _LEAST) / (last - first) if last > first else 0.0
    bars = [
        Bar(
            place * _ROW,
            round((stage["begins_after"] - first) * scale, 1),
            round(max((stage["seconds"] or 0.0) * scale, _LEAST), 1),
            _label(stage),
            ", ".join(stage["refs"]) + (" and more" if stage["n_refs"] > len(stage["refs"]) else ""),
            stage["joined"],
        )
        for place, stage in enumerate(shown)
    ]
    return Drawing(_WIDTH, max(len(bars), 1) * _ROW, bars, len(stages) - len(shown))


def _label(stage: dict[str, Any]) -> str:
    partitions = "1 partition" if stage["n_refs"] == 1 else f"{stage['n_refs']:,} partitions"
    return f"{stage['job']}, {partitions}"
