"""A state machine is a table with one row per legal move.

Rows carry no conditions. A condition is a decision; decisions are made before an event is written, or by the
reaction to it, and their outcome is the row's `on`. That keeps replay a lookup. The import of a bad table fails: two rows for
the same case, a state that no row leads to, a state without a way out that is not final.
"""

from collections.abc import Iterable, Iterator
from enum import Enum, StrEnum
from typing import Generic, NamedTuple, TypeVar

from databuild_dagster.model.errors import IllegalMove
from databuild_dagster.model.wording import state_in_words

S = TypeVar("S", bound=Enum)
C = TypeVar("C", bound=Enum)


class Label(StrEnum):
    """A state or a cause: an enum member that is its own stored text, and hashed as such, in C instead of in Python."""

    __hash__ = str.__hash__

    @property
    def in_words(self) -> str:
        return state_in_words(self)


class Move(NamedTuple, Generic[S, C]):
    """A legal move: from a state (None at birth), on a cause, to a state, and why that is right."""

    from_state: S | None
    on: C
    to_state: S
    why: str


class Machine(Generic[S, C]):
    """A checked table of moves; `next` looks a move up."""

    def __init__(self, name: str, moves: Iterable[Move[S, C]], *, final: Iterable[S] = ()) -> None:
        self.name = name
        self.moves = tuple(moves)
        self.final = frozenset(final)
        self._to: dict[tuple[S | None, C], S] = {}
        for move in self.moves:
            case = (move.from_state, move.on)
            if case in self._to:
                raise ValueError(f"{name}: two rows for {_label(move.from_state)} on {_label(move.on)}")
            self._to[case] = move.to_state
        self._check_states()

    def _check_states(self) -> None:
        states = set(type(self.moves[0].to_state))
        reached = {move.to_state for move in self.moves}
        left = {move.from_state for move in self.moves}
        if unreachable := states - reached:
            raise ValueError(f"{self.name}: nothing leads to {_labels(unreachable)}")
        if stuck := states - left - self.final:
            raise ValueError(f"{self.name}: no way out of {_labels(stuck)}")
        if leaving := self.final & left:
            raise ValueError(f"{self.name}: final states are left: {_labels(leaving)}")

    def next(self, state: S | None, on: C, *, entity: str = "", seq: int = 0) -> S:
        """The state after a move. Raises `IllegalMove` for a pair that is not in the table (rule 3.5)."""
        to_state = self._to.get((state, on))
        if to_state is None:
            raise IllegalMove(
                seq=seq,
                entity=f"{self.name} {entity}".strip(),
                state=_label(state),
                on=_label(on),
                why="the table has no such move",
            )
        return to_state

    @property
    def steps(self) -> frozenset[tuple[S | None, S]]:
        """Every (from, to) of the table: the possible rows of history (rule 3.2)."""
        return frozenset((move.from_state, move.to_state) for move in self.moves)

    def __iter__(self) -> Iterator[Move[S, C]]:
        return iter(self.moves)


def _label(value: Enum | None) -> str:
    return "(birth)" if value is None else str(value.value)


def _labels(states: Iterable[Enum]) -> str:
    return ", ".join(sorted(str(state.value) for state in states))
