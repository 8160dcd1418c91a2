"""The action of a base that promotes all that one of its environments built (rule 16.10)."""

from pathlib import Path
from typing import Final

import msgspec

from databuild_dagster.data.home import sqlite_url
from databuild_dagster.engine.engine import Engine
from databuild_dagster.features.environments.environments import Environments
from databuild_dagster.features.environments.promoting import Promotion, promote
from databuild_dagster.features.environments.showing_promoted import announce
from databuild_dagster.model.refs import asset_of
from databuild_dagster.model.states import InstanceState
from databuild_dagster.model.wording import counted
from databuild_dagster.store.store import open_store
from databuild_dagster.web.action import MAX_NAMED, Action, By, Foreseen, Move, Values
from databuild_dagster.web.parameters import text
from databuild_dagster.web.state import State

#: Rows of a preview, and causes in it.
MAX_SHOWN: Final = 100


class Promoted(msgspec.Struct, frozen=True):
    """What the base took of an environment."""

    environment: str
    #: The event of the base; null if it had all of it already.
    seq: int | None


def _environments(state: State) -> Environments:
    home, engine = Path(state.instance().root_directory), state.engine

    def opened(of: Path) -> Engine:
        # An engine of its own, which the command closes. A promotion of all asks the catalog nothing.
        url = engine.store.url if of == home else sqlite_url(of)
        return Engine(open_store(url, str(of)), engine.catalog, clock=engine.clock)

    return Environments(home, opened)


def _promote(state: State, values: Values, by: By) -> Promoted:
    done = promote(_environments(state), values["environment"], actor=by.actor, command_id=by.command_id)
    announce(done, state.instance)
    return Promoted(done.environment, done.seq)


def _would_promote(state: State, values: Values, actor: str) -> Foreseen:
    done = promote(_environments(state), values["environment"], actor=actor, dry_run=True)
    causes = [f"{cause.ref}: {cause.why}" for cause in done.causes]
    moves = _moves(state, done)
    return Foreseen(
        [
            *_sentences(done),
            *(f"These are the first {MAX_SHOWN} rows, {rest}." for rest in _rest(len(moves), "further row")),
        ],
        moves[:MAX_SHOWN],
        [*causes[:MAX_SHOWN], *_rest(len(causes), "further cause")],
    )


def _sentences(done: Promotion) -> list[str]:
    if done.causes:
        return [f"The base takes nothing of {done.environment}, for {counted(len(done.causes), 'cause')}."]
    if not done.moved:
        return [f"The base has all that {done.environment} built. Nothing would change."]
    n = counted(len(done.moved), "partition")
    there = [f"The base has {counted(len(done.there), 'partition')} already."] if done.there else []
    return [f"The base would take {n} from {done.environment}, in one event. Nothing is built or copied.", *there]


def _moves(state: State, done: Promotion) -> list[Move]:
    """By asset and state in the base, inputs before what was built from them."""
    states = state.engine.queries.canonical.states([move.ref for move in done.moved])
    groups: dict[tuple[str, InstanceState | None], list[str]] = {}
    for move in done.moved:
        groups.setdefault((asset_of(move.ref), states[move.ref]), []).append(move.ref)
    return [
        Move(
            "partition", None if before is None else before.value, InstanceState.LIVE.value, len(refs), refs[:MAX_NAMED]
        )
        for (_, before), refs in groups.items()
    ]


def _rest(n: int, what: str) -> list[str]:
    return [f"and {counted(n - MAX_SHOWN, what)}"] if n > MAX_SHOWN else []


PROMOTE: Final = Action(
    "promote",
    "Promote",
    "Make all that an environment built the data of this base, in one event or not at all.",
    (text("environment", "The name of the environment.", required=True),),
    act=_promote,
    rehearse=_would_promote,
    answer=Promoted,
    subjects=("environment",),
    done_in_words="promoted",
    words_of_states={InstanceState.LIVE.value: "the environment's"},
)

ACTIONS: Final = (PROMOTE,)
