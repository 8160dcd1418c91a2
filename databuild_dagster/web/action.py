"""An action: a url with its fields, its dry run, its command, and the type of its answer.

An action is a command of the engine with a command id, so that a form that is sent twice does it once. In its dry run the command
is handled and rolled back, and what would have moved is counted.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple, Protocol

import msgspec

from databuild_dagster.bindings.registry.selections import select_names, select_refs
from databuild_dagster.engine.engine import Engine, Outcome, Preview
from databuild_dagster.model.commands import Command
from databuild_dagster.model.refs import Ref
from databuild_dagster.store.queries.queries import Change
from databuild_dagster.web.parameters import Parameter, flag, ref, several, text
from databuild_dagster.web.refusals import TooManyRefs
from databuild_dagster.web.state import State

#: Partitions of one action; the command line has no such limit.
MAX_REFS: Final = 10_000
#: The reason of a dry run whose person has typed none yet.
_NO_REASON_YET: Final = "a dry run"

REASON: Final = text("reason", "The reason, kept in the log.")
REFS: Final = several(ref("refs", "The partitions: refs, and selections such as sales@2024-01-01..2024-01-31."))
TERMINATE: Final = flag("terminate", "Also cancel running job runs.")

Values = Mapping[str, Any]
#: Does the command.
Handle = Callable[[], Outcome]


class By(NamedTuple):
    """Who gives a command, and the id by which it is done once."""

    actor: str
    command_id: str


class Act(Protocol):
    """Does the action; the answer has the action's type."""

    def __call__(self, state: State, values: Values, by: By, /) -> Any: ...


class Rehearse(Protocol):
    """Finds out what the action would do."""

    def __call__(self, state: State, values: Values, actor: str, /) -> Foreseen: ...


@dataclass(frozen=True)
class Action:
    """A url below /databuild/api/v1/actions, called with POST."""

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
    #: Words of states in its preview, where the states' own words are not what a person expects of it.
    words_of_states: Mapping[str, str] = field(default_factory=dict)

    @property
    def path(self) -> str:
        return f"/actions/{self.name}"

    def rehearsal(self, state: State, values: Values, actor: str) -> Rehearsal:
        """What the action would do now. Raises what the action raises."""
        would, moves, causes = self.rehearse(state, values, actor)
        return Rehearsal(self.name, would, moves, list(causes))


def commanded(
    command_of: Callable[[State, Values], Command],
    answer_of: Callable[[Engine, Any, Handle], Any],
    would: Callable[[State, Any, Preview], list[str]],
) -> dict[str, Any]:
    """The two functions of an action that is a single command of the engine.

    `answer_of` calls its last argument, which does the command, so that it can look at the state before and after.
    """

    def act(state: State, values: Values, by: By) -> Any:
        engine, command = state.engine, command_of(state, values)
        return answer_of(engine, command, lambda: engine.handle(command, actor=by.actor, command_id=by.command_id))

    def rehearse(state: State, values: Values, actor: str) -> Foreseen:
        given = dict(values)
        if "reason" in given:
            given["reason"] = given["reason"] or _NO_REASON_YET
        command = command_of(state, given)
        preview = state.engine.preview(command, actor=actor)
        return Foreseen(would(state, command, preview), moves_of(preview))

    return {"act": act, "rehearse": rehearse}


def refs_of(state: State, values: Values) -> tuple[Ref, ...]:
    """The refs of names and ranges. Raises `TooManyRefs`, and as `select_refs`."""
    return bounded(select_refs(state.engine.queries, state.instance, values["refs"]))


def names_of(state: State, values: Values) -> tuple[Ref, ...]:
    """The refs and whole assets of names and ranges. Raises as `refs_of`."""
    return bounded(select_names(state.engine.queries, state.instance, values["refs"]))


def bounded(refs: Iterable[Ref]) -> tuple[Ref, ...]:
    """The refs, each once. Raises `TooManyRefs`."""
    refs = tuple(dict.fromkeys(refs))
    if len(refs) > MAX_REFS:
        raise TooManyRefs(n=len(refs), most=MAX_REFS)
    return refs


#: Partitions, wants and job runs that a line names.
MAX_NAMED: Final = 20
_KINDS: Final = {"instances": "partition", "wants": "want", "job_runs": "job run"}


class Move(msgspec.Struct, frozen=True):
    """Partitions, wants or job runs that would change their state from `before`, null if they are new, to `after`."""

    kind: str
    before: str | None
    after: str
    n: int
    #: The first names.
    first: list[str]


class Foreseen(NamedTuple):
    """The fields of a rehearsal."""

    would: list[str]
    moves: list[Move]
    causes: Sequence[str] = ()


class Rehearsal(msgspec.Struct, frozen=True):
    """What an action would do now. Nothing was recorded."""

    action: str
    #: Each is a sentence.
    would: list[str]
    moves: list[Move]
    #: Why the action would be refused now, where it can name several causes at once: a ref or an asset, and the cause.
    causes: list[str]


def moves_of(preview: Preview) -> list[Move]:
    """The moves of a preview, from the first state of each entity to its last state."""
    return grouped_moves(preview.changes)


def grouped_moves(changes: Iterable[Change]) -> list[Move]:
    ends: dict[tuple[str, str], tuple[str | None, str]] = {}
    for change in changes:
        key = (change.kind, change.entity)
        before = ends[key][0] if key in ends else change.before
        ends[key] = before, change.after
    groups: dict[tuple[str, str | None, str], list[str]] = {}
    for (kind, entity), (before, after) in ends.items():
        if before != after:
            groups.setdefault((_KINDS[kind], before, after), []).append(entity)
    return [_move(*group, names) for group, names in groups.items()]


def _move(kind: str, before: str | None, after: str, names: Sequence[str]) -> Move:
    return Move(kind, before, after, len(names), sorted(names)[:MAX_NAMED])
