"""The url of the plan: what a build would do, for refs as a person types them."""

import shlex
from typing import Any, Final

from databuild_dagster.bindings.registry.selections import select_refs
from databuild_dagster.calls.plans import Plan, plan_of, plan_shape
from databuild_dagster.engine.why.preview import Action
from databuild_dagster.model.errors import InvalidRequest, ReachesTooFar
from databuild_dagster.model.plan import MAX_REACHED
from databuild_dagster.model.refs import Ref, parse_ref
from databuild_dagster.model.wording import few_of
from databuild_dagster.web.parameters import text
from databuild_dagster.web.routes import EffectOnPage, PlanQuestion, PlanQuestions, Row
from databuild_dagster.web.state import State

REFS: Final = text(
    "ref",
    "Partitions: refs, ranges such as sales@2024-01-01..2024-01-31 and sales@*, with blanks between; "
    "for new code, the name of an asset.",
    required=True,
)


class MalformedNames(InvalidRequest):
    """{what} is {value!r}, which is not possible: a quotation mark has no partner."""

    hint = "Write names with blanks between them; put a name with a blank between two quotation marks."


def plan(state: State, ref: str) -> Plan:
    """What a build of some refs would do."""
    refs = refs_named(state, ref)
    return plan_shape(plan_of(state.engine, refs, state.instance(), most_refs=MAX_REACHED))


def refs_named(state: State, written: str) -> tuple[Ref, ...]:
    """The refs of a text with names and ranges. Raises `ReachesTooFar`, `MalformedNames`, and as `select_refs`."""
    names = [parse_ref(name) for name in names_in(written)]
    refs = select_refs(state.engine.queries, state.instance, names)
    if len(refs) > MAX_REACHED:
        raise ReachesTooFar(named=few_of(names), most=MAX_REACHED)
    return refs


def names_in(written: str) -> list[str]:
    """The names in a text, as a shell splits them. Raises `MalformedNames`, `InvalidRequest`."""
    splitting = shlex.shlex(written, posix=True, punctuation_chars="")
    splitting.whitespace_split, splitting.commenters, splitting.escape = True, "", ""
    try:
        names = list(splitting)
    except ValueError:
        raise MalformedNames(what="ref", value=written) from None
    if not names:
        raise InvalidRequest(what="ref", value=written, why="it names no partition")
    return names


def _rows(answer: dict[str, Any]) -> list[Row]:
    return [Row(entry["ref"], entry["job"], entry["action"], entry["reason"]) for entry in answer["jobs"]]


QUESTION: Final = PlanQuestions(
    (
        PlanQuestion(
            "build",
            "these are built",
            "which partitions would be built, joined, reused or blocked, and how long it takes",
            "databuild plan",
        ),
    ),
    (
        EffectOnPage(Action.BUILD.value, "to build", "building"),
        EffectOnPage(Action.JOIN.value, "to join", "waiting"),
        EffectOnPage(Action.REUSE.value, "to reuse", "live"),
        EffectOnPage(Action.BLOCKED.value, "blocked", "failed"),
    ),
    _rows,
)
