"""What users may rely on, as registers (docs/rules): which instance readers of a ref see, and whether the ref is paused.

They are written from the rules and know nothing of the package.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from .linear import Operation


class Readers(NamedTuple):
    """What readers of a ref see: the instance of its pointer, if that one can be trusted."""

    uuid: str | None = None
    is_live: bool = False
    #: Pairs of a taint and the instance that has it.
    taints: frozenset[tuple[str, str | None]] = frozenset()


def readers(state: Readers, operation: Operation) -> Iterator[Readers]:
    """The register of a ref's pointer (rules 4, 7). Facts are an instance, or a taint, or None."""
    fact = operation.facts
    match operation.what:
        case "sees":
            if state.is_live and state.uuid == fact:
                yield state
        case "sees something":
            if state.is_live:
                yield state
        case "sees nothing":
            if not state.is_live:
                yield state
        case "publish":
            yield state._replace(uuid=fact, is_live=True)
        case "revert":
            # It cancels the taints of the instance, and is refused for the canonical one.
            if not (state.is_live and state.uuid == fact):
                kept = frozenset(pair for pair in state.taints if pair[1] != fact)
                yield Readers(fact, True, kept)
        case "taint":
            yield state._replace(is_live=False, taints=state.taints | {(fact, state.uuid)})
        case "untaint":
            yield from _untainted(state, fact)
        case unknown:
            raise ValueError(unknown)


def _untainted(state: Readers, taint: str | None) -> Iterator[Readers]:
    freed = {uuid for known, uuid in state.taints if known == taint}
    after = state._replace(taints=frozenset(pair for pair in state.taints if pair[0] != taint))
    if freed and state.uuid in freed and not state.is_live and state.uuid not in {uuid for _, uuid in after.taints}:
        yield after._replace(is_live=True)
    # A build that has begun since has moved the pointer, which the outside cannot see.
    if not state.is_live or state.uuid not in freed:
        yield after


def pauses(is_paused: bool, operation: Operation) -> Iterator[bool]:
    """The register of a ref's pause (rule 6.13)."""
    match operation.what:
        case "pause":
            if not is_paused:
                yield True
        case "resume":
            if is_paused:
                yield False
        case "sees a pause":
            if is_paused:
                yield True
        case "sees no pause":
            if not is_paused:
                yield False
        case unknown:
            raise ValueError(unknown)
