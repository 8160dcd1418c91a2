"""An action: one url with its fields, its dry run, its command, and the type of its answer.

An action is a command of the engine with a command id, so that a form that is sent twice does it once.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, NamedTuple, Protocol

from databuild_dagster.bindings.registry.selections import select_names, select_refs
from databuild_dagster.engine.engine import Engine, Preview
from databuild_dagster.model.commands import Command
from databuild_dagster.model.refs import Ref
from databuild_dagster.web.parameters import Parameter, flag, ref, several, text
from databuild_dagster.web.refusals import TooManyRefs
from databuild_dagster.web.rehearsal import MoveShape, RehearsalShape, moves_of
from databuild_dagster.web.state import State

#: Partitions of one action; the command line has no such limit.
MAX_REFS: Final = 10_000
#: The reason of a dry run whose person has typed none yet.
_NO_REASON_YET: Final = "a dry run"

REASON: Final = text("reason", "The reason, kept in the log.")
REFS: Final = several(ref("refs", "The partitions: refs, and selections such as sales@2024-01-01..2024-01-31."))
TERMINATE: Final = flag("terminate", "Also cancel running job runs.")

Values = Mapping[str, Any]


class By(NamedTuple):
    """Who gives a command, and the id by which it is done once."""

    actor: str
    command_id: str


class Act(Protocol):
    """Does the action; the answer has the action's type."""

    def __call__(self, state: State, values: Values, by: By, /) -> Any: ...


class Rehearse(Protocol):
    """Finds out what the action would do."""

    def __call__(self, state: State, values: Values, actor: str, /) -> tuple[list[str], list[MoveShape]]: ...


@dataclass(frozen=True)
class Action:
    """One url below /databuild/api/v1/actions, which POST calls."""

    name: str
    #: The words of its button.
    title: str
    summary: str
    parameters: tuple[Parameter, ...]
    act: Act
    rehearse: Rehearse
    #: The type of the answer.
    answer: Any
    #: Fields that a page gives, and a person does not change.
    subjects: tuple[str, ...]
    #: It takes data or work away, so its buttons are red.
    takes_away: bool = False
    #: What it did, where the types of its events do not say it.
    done_in_words: str = ""

    @property
    def path(self) -> str:
        return f"/actions/{self.name}"

    def rehearsal(self, state: State, values: Values, actor: str) -> RehearsalShape:
        """What the action would do now. Raises what the action raises."""
        would, moves = self.rehearse(state, values, actor)
        return {"action": self.name, "would": would, "moves": moves}


def commanded(
    command_of: Callable[[State, Values], Command],
    done: Callable[[Engine, Any, By], Any],
    would: Callable[[State, Any, Preview], list[str]],
) -> dict[str, Any]:
    """The two functions of an action that is one command of the engine."""

    def act(state: State, values: Values, by: By) -> Any:
        return done(state.engine, command_of(state, values), by)

    def rehearse(state: State, values: Values, actor: str) -> tuple[list[str], list[MoveShape]]:
        given = dict(values)
        if "reason" in given:
            given["reason"] = given["reason"] or _NO_REASON_YET
        command = command_of(state, given)
        preview = state.engine.preview(command, actor=actor)
        return would(state, command, preview), moves_of(preview)

    return {"act": act, "rehearse": rehearse}


def refs_of(state: State, values: Values) -> tuple[Ref, ...]:
    """The refs of names and ranges. Raises `TooManyRefs`, and as `select_refs`."""
    return _bounded(select_refs(state.engine.queries, state.instance, values["refs"]))


def names_of(state: State, values: Values) -> tuple[Ref, ...]:
    """The refs and whole assets of names and ranges. Raises as `refs_of`."""
    return _bounded(select_names(state.engine.queries, state.instance, values["refs"]))


def _bounded(refs: tuple[Ref, ...]) -> tuple[Ref, ...]:
    if len(refs) > MAX_REFS:
        raise TooManyRefs(n=len(refs), most=MAX_REFS)
    return refs
