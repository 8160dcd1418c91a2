"""The questions of the page Plan: what a build would do, and what follows from a supposition, for refs as a person types them."""

from __future__ import annotations

import shlex
from typing import Final

from databuild_dagster.bindings.registry.selections import select_refs
from databuild_dagster.engine.what_if.answers import Effect, Question
from databuild_dagster.engine.what_if.questions import if_code_changes, if_missing, if_tainted
from databuild_dagster.engine.what_if.reaching import MAX_REACHED, ReachesTooFar
from databuild_dagster.engine.why.preview import Action
from databuild_dagster.model.errors import InvalidRequest
from databuild_dagster.model.refs import Ref, parse_ref
from databuild_dagster.model.wording import few_of
from databuild_dagster.shapes.plans import PlanShape, WhatIfShape, plan_of, plan_shape, what_if_shape
from databuild_dagster.web import plan_questions as asked
from databuild_dagster.web.parameters import Parameter, choice, flag, text
from databuild_dagster.web.plan_questions import EffectOnPage, PlanQuestions, Row
from databuild_dagster.web.state import State

REFS: Final = text(
    "ref",
    "Partitions: refs, ranges such as sales@2024-01-01..2024-01-31 and sales@*, with blanks between; "
    "for new code, the name of an asset.",
    required=True,
)
WHAT: Final = choice("what", "The supposition.", [question.value for question in Question], required=True)
DOWNSTREAM: Final[Parameter] = flag("downstream", "A taint also covers what was built from them.")


class MalformedNames(InvalidRequest):
    """{what} is {value!r}, which is not possible: a quotation mark has no partner."""

    hint = "Write names with blanks between them; put a name with a blank between two quotation marks."


def plan(state: State, ref: str) -> PlanShape:
    """What a build of some refs would do."""
    refs = _refs(state, ref)
    return plan_shape(plan_of(state.engine, refs, state.instance(), most_refs=MAX_REACHED))


def what_if(state: State, what: str, ref: str, downstream: bool) -> WhatIfShape:
    """What follows from a supposition about some refs, or about an asset."""
    engine = state.engine
    match Question(what):
        case Question.TAINT:
            found = if_tainted(engine, _refs(state, ref), downstream=downstream)
        case Question.MISSING:
            found = if_missing(engine, _refs(state, ref))
        case Question.CODE:
            found = if_code_changes(engine, _one(_names(ref)))
    return what_if_shape(found)


def _refs(state: State, written: str) -> tuple[Ref, ...]:
    names = [parse_ref(name) for name in _names(written)]
    refs = select_refs(state.engine.queries, state.instance, names)
    if len(refs) > MAX_REACHED:
        raise ReachesTooFar(named=few_of(names), most=MAX_REACHED)
    return refs


def _names(written: str) -> list[str]:
    """The names in a text, as a shell splits them."""
    splitting = shlex.shlex(written, posix=True, punctuation_chars="")
    splitting.whitespace_split, splitting.commenters, splitting.escape = True, "", ""
    try:
        names = list(splitting)
    except ValueError:
        raise MalformedNames(what="ref", value=written) from None
    if not names:
        raise InvalidRequest(what="ref", value=written, why="it names no partition")
    return names


def _one(names: list[str]) -> str:
    if len(names) > 1:
        raise InvalidRequest(what="ref", value=" ".join(names), why="new code is of one asset; name that")
    return names[0]


def _rows_of_plan(answer: PlanShape) -> list[Row]:
    return [Row(entry["ref"], entry["job"], entry["action"], entry["reason"]) for entry in answer["jobs"]]


def _rows_of_what_if(answer: WhatIfShape) -> list[Row]:
    return [Row(entry["ref"], entry["job"], entry["effect"], entry["reason"]) for entry in answer["changes"]]


BUILD_QUESTION: Final = PlanQuestions(
    (
        asked.Question(
            "build",
            "these are built",
            "which partitions would be built, joined, reused or blocked, and how long it takes",
            "databuild plan",
        ),
    ),
    (
        EffectOnPage(Action.BUILD.value, "built", "building"),
        EffectOnPage(Action.JOIN.value, "joined", "waiting"),
        EffectOnPage(Action.REUSE.value, "reused", "live"),
        EffectOnPage(Action.BLOCKED.value, "blocked", "failed"),
    ),
    _rows_of_plan,
)
SUPPOSITIONS: Final = PlanQuestions(
    (
        asked.Question(
            Question.TAINT.value,
            "their data is tainted",
            "which partitions open wants build again, and which stay tainted or stale",
            "databuild what-if taint",
            {"what": Question.TAINT.value},
            (asked.Switch(DOWNSTREAM, "taint what was built from them"),),
        ),
        asked.Question(
            Question.CODE.value,
            "the code of this asset changes",
            "which partitions are built again with new code, and what becomes stale; write the name of an asset",
            "databuild what-if code",
            {"what": Question.CODE.value},
        ),
        asked.Question(
            Question.MISSING.value,
            "these never arrive",
            "which partitions wait for them, and what is built all the same",
            "databuild what-if missing",
            {"what": Question.MISSING.value},
        ),
    ),
    (
        EffectOnPage(Effect.WAIT.value, "waiting", "wanted"),
        EffectOnPage(Effect.TAINTED.value, "left tainted", "tainted"),
        EffectOnPage(Effect.STALE.value, "left stale", "stale"),
    ),
    _rows_of_what_if,
)
