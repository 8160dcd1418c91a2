"""The url of suppositions, and their questions on the page Plan."""

from typing import Any, Final

from databuild_dagster.features.what_if.answers import Effect, Question, ShownWhatIf, what_if_shape
from databuild_dagster.features.what_if.questions import if_code_changes, if_missing, if_tainted
from databuild_dagster.model.errors import InvalidRequest
from databuild_dagster.web.parameters import choice, flag
from databuild_dagster.web.plans import REFS, names_in, refs_named
from databuild_dagster.web.routes import ApiRoute, EffectOnPage, PlanQuestion, PlanQuestions, Row, Switch
from databuild_dagster.web.state import State

_WHAT: Final = choice("what", "The supposition.", [question.value for question in Question], required=True)
_DOWNSTREAM: Final = flag("downstream", "A taint also covers what was built from them.")


def what_if(state: State, what: str, ref: str, downstream: bool) -> ShownWhatIf:
    """What follows from a supposition about some refs, or about an asset."""
    engine = state.engine
    match Question(what):
        case Question.TAINT:
            found = if_tainted(engine, refs_named(state, ref), downstream=downstream)
        case Question.MISSING:
            found = if_missing(engine, refs_named(state, ref))
        case Question.CODE:
            found = if_code_changes(engine, _one(names_in(ref)))
    return what_if_shape(found)


def _one(names: list[str]) -> str:
    if len(names) > 1:
        raise InvalidRequest(what="ref", value=" ".join(names), why="new code is of one asset; name that")
    return names[0]


def _rows(answer: dict[str, Any]) -> list[Row]:
    return [Row(entry["ref"], entry["job"], entry["effect"], entry["reason"]) for entry in answer["changes"]]


_ON_PAGE: Final = PlanQuestions(
    (
        PlanQuestion(
            Question.TAINT.value,
            "their data is tainted",
            "which partitions open wants build again, and which stay tainted or stale",
            "databuild plan --if-tainted",
            {"what": Question.TAINT.value},
            (Switch(_DOWNSTREAM, "taint what was built from them"),),
        ),
        PlanQuestion(
            Question.CODE.value,
            "the code of this asset changes",
            "which partitions are built again with new code, and what becomes stale; write the name of an asset",
            "databuild plan --if-new-code",
            {"what": Question.CODE.value},
        ),
        PlanQuestion(
            Question.MISSING.value,
            "these never arrive",
            "which partitions wait for them, and what is built all the same",
            "databuild plan --if-missing",
            {"what": Question.MISSING.value},
        ),
    ),
    (
        EffectOnPage(Effect.WAIT.value, "waiting", "wanted"),
        EffectOnPage(Effect.TAINTED.value, "left tainted", "tainted"),
        EffectOnPage(Effect.STALE.value, "left stale", "stale"),
    ),
    _rows,
)

ROUTES: Final = (
    ApiRoute(
        "/what-if",
        "What follows if partitions are tainted or never arrive, or if the code of an asset changes.",
        what_if,
        ShownWhatIf,
        (_WHAT, REFS, _DOWNSTREAM),
        plan=_ON_PAGE,
    ),
)
