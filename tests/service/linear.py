"""Whether a recorded history is linearizable: each operation takes effect at one moment between its call and its answer.

The search knows nothing of what it searches: a register is its first state and a function. It follows Lowe's variant of the
algorithm of Wing and Gong ("Testing for linearizability", 2017): the configurations are advanced call by call and answer by
answer, and equal ones are kept once.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Sequence
from itertools import chain
from typing import Any, NamedTuple, TypeVar

State = TypeVar("State", bound=Hashable)


class Operation(NamedTuple):
    """One operation of one client, in seconds of a clock that all of them share."""

    what: str
    called: float
    #: The end of the time in which it can have taken effect.
    answered: float
    #: The arguments and the answer that the register knows.
    facts: Any = None
    #: Whether it took effect for sure. The caller of others died before the answer.
    is_sure: bool = True
    client: str = ""

    def __str__(self) -> str:
        doubt = "" if self.is_sure else ", perhaps"
        return f"{self.called:9.3f} to {self.answered:9.3f}  {self.client:<14} {self.what} {self.facts}{doubt}"


#: The states after an operation; none if it cannot take effect in this state with this answer.
Apply = Callable[[State, Operation], Iterable[State]]


def first_fault(operations: Sequence[Operation], first: State, apply: Apply[State]) -> Operation | None:
    """The first operation whose answer no order of the operations explains; None if one explains all."""
    ends = [(operation.answered, 1, number) for number, operation in enumerate(operations)]
    calls = [(operation.called, 0, number) for number, operation in enumerate(operations)]
    pending: set[int] = set()
    #: Pairs of a state and the pending operations that have taken effect in it.
    configurations: set[tuple[State, frozenset[int]]] = {(first, frozenset())}
    for _, is_end, number in sorted(chain(calls, ends)):
        if not is_end:
            pending.add(number)
            continue
        reached = _closure(configurations, pending, operations, apply)
        if operations[number].is_sure:
            reached = {(state, done) for state, done in reached if number in done}
        if not reached:
            return operations[number]
        configurations = {(state, done - {number}) for state, done in reached}
        pending.discard(number)
    return None


def _closure(
    configurations: set[tuple[State, frozenset[int]]],
    pending: set[int],
    operations: Sequence[Operation],
    apply: Apply[State],
) -> set[tuple[State, frozenset[int]]]:
    """The configurations, and those that they become when pending operations take effect, in any order."""
    reached, new = set(configurations), list(configurations)
    while new:
        state, done = new.pop()
        for number in pending - done:
            for after in apply(state, operations[number]):
                configuration = (after, done | {number})
                if configuration not in reached:
                    reached.add(configuration)
                    new.append(configuration)
    return reached
