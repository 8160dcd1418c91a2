"""The page Plan: what a build would do and what follows from a supposition, in one layout for both answers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple

from databuild_dagster.engine.why.preview import Action
from databuild_dagster.features.what_if.answers import Effect, Question
from databuild_dagster.model.errors import DatabuildError
from databuild_dagster.shapes.fields import error_as_json
from databuild_dagster.shapes.plans import StageShape
from databuild_dagster.web import plans
from databuild_dagster.web.parameters import Parameter, choice, number, text
from databuild_dagster.web.refusals import names_a_place

#: The question without a supposition.
_BUILD: Final = "build"
#: The questions as the form names them.
QUESTIONS: Final = {
    _BUILD: "these are built",
    Question.TAINT.value: "their data is tainted",
    Question.CODE.value: "the code of this asset changes",
    Question.MISSING.value: "these never arrive",
}
#: The marks that colour what follows.
MARK_OF: Final = {
    Action.BUILD.value: "building",
    Action.JOIN.value: "waiting",
    Action.REUSE.value: "live",
    Action.BLOCKED.value: "failed",
    Effect.WAIT.value: "wanted",
    Effect.TAINTED.value: "tainted",
    Effect.STALE.value: "stale",
}
_WORDS: Final = {
    "build": "built",
    "join": "joined",
    "reuse": "reused",
    "blocked": "blocked",
    "wait": "waiting",
    "tainted": "left tainted",
    "stale": "left stale",
}
#: Rows of one page, and bars of its drawing.
MAX_ROWS: Final = 200
MAX_BARS: Final = 40
_WIDTH: Final = 1_000
_ROW: Final = 26
#: The least width of a bar that can be seen.
_LEAST: Final = 3.0

PARAMETERS: Final[tuple[Parameter, ...]] = (
    text("ref", "Partitions, ranges, or the name of an asset."),
    choice("what", "The question.", list(QUESTIONS)),
    plans.DOWNSTREAM,
    choice("only", "Only partitions with this effect.", list(_WORDS)),
    number("offset", "The number of rows before the first.", 0, 0, 1_000_000),
)


class Row(NamedTuple):
    """One ref of the answer."""

    ref: str
    job: str
    effect: str
    reason: str


class Bar(NamedTuple):
    """One stage as a bar over time; places are in units of the drawing."""

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


def show(ask: Callable[..., Any], values: dict[str, Any]) -> dict[str, Any]:
    """The values of the template."""
    what = values["what"] or _BUILD
    shown: dict[str, Any] = {
        "values": {**values, "what": what},
        "questions": QUESTIONS,
        "mark_of": MARK_OF,
        "words": _WORDS,
        "found": None,
        "error": None,
    }
    if not values["ref"]:
        return shown
    try:
        found = ask("plan", ref=values["ref"]) if what == _BUILD else _supposed(ask, what, values)
    except DatabuildError as error:
        if names_a_place(error):
            raise
        return {**shown, "error": error_as_json(error)}
    # The sort is stable: partitions that need nothing come last.
    rows = sorted(map(_row, _entries(found)), key=lambda row: row.effect == Action.REUSE)
    chosen = [row for row in rows if values["only"] in (None, row.effect)]
    offset = values["offset"]
    counts = {effect: n for effect in _WORDS if (n := sum(row.effect == effect for row in rows))}
    return {
        **shown,
        "found": found,
        "rows": chosen[offset : offset + MAX_ROWS],
        "n_rows": len(chosen),
        "counts": counts,
        "drawing": drawn(found["stages"]),
        "command": _command(what, values),
        "most": MAX_ROWS,
    }


def _supposed(ask: Callable[..., Any], what: str, values: dict[str, Any]) -> Any:
    return ask("what-if", what=what, ref=values["ref"], downstream=values["downstream"])


def _entries(found: Any) -> list[dict[str, Any]]:
    entries: list[dict[str, Any]] = found["changes"] if "changes" in found else found["jobs"]
    return entries


def _row(entry: dict[str, Any]) -> Row:
    return Row(entry["ref"], entry["job"], entry.get("effect") or entry["action"], entry["reason"])


def _command(what: str, values: dict[str, Any]) -> str:
    """The same question on the command line."""
    name = "plan" if what == _BUILD else f"what-if {what}"
    option = " --downstream" if what == Question.TAINT and values["downstream"] else ""
    return f"databuild {name} {values['ref']}{option}"


def drawn(stages: Sequence[StageShape]) -> Drawing:
    """The stages over time; one without a history is a bar of the least width."""
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


def _label(stage: StageShape) -> str:
    partitions = "1 partition" if stage["n_refs"] == 1 else f"{stage['n_refs']:,} partitions"
    return f"{stage['job']}, {partitions}"
