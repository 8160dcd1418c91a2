"""Every joint state of one to three partitions, and every legal move of them, against the want table (rule 5.2)."""

from __future__ import annotations

from collections import Counter
from itertools import combinations, product

import pytest

from databuild_dagster.model.states import (
    INSTANCE,
    SCHEDULABLE,
    WANT,
    WANT_CAUSE_OF_STATE,
    InstanceState,
    WantCause,
    WantState,
    want_state,
)

DATABASES = ()

_I, _W = InstanceState, WantState
STATES = (None, *InstanceState)
ENDED_FOR_GOOD = {_W.FAILED, _W.UPSTREAM_FAILED, _W.CANCELED, _W.EXPIRED}


def spec_5_2(states):
    """The list of rule 5.2, word for word."""
    if _I.FAILED in states:
        return _W.FAILED
    if _I.UPSTREAM_FAILED in states:
        return _W.UPSTREAM_FAILED
    if all(state is _I.LIVE for state in states):
        return _W.SUCCESSFUL
    if _I.BUILDING in states:
        return _W.BUILDING
    if _I.UPSTREAM_BUILDING in states:
        return _W.UPSTREAM_BUILDING
    return _W.IDLE


def of(states):
    counts = Counter(states)
    return want_state(
        len(states),
        counts[_I.LIVE],
        counts[_I.FAILED],
        counts[_I.UPSTREAM_FAILED],
        counts[_I.BUILDING],
        counts[_I.UPSTREAM_BUILDING],
    )


def canonical_moves(state):
    """The canonical states of a ref that are possible after one event, by its instance's moves or by a new instance."""
    moved = {move.to_state for move in INSTANCE if move.from_state is state and state is not None}
    if state in SCHEDULABLE:
        moved.add(_I.BUILDING)
    if state not in (_I.BUILDING, _I.UPSTREAM_BUILDING):
        moved.add(_I.LIVE)  # A lot arrives (rule 4.2).
    return moved - {state}


@pytest.mark.parametrize("n_refs", [1, 2, 3])
def test_a_wants_state_is_the_first_match_over_its_refs(n_refs):
    for states in product(STATES, repeat=n_refs):
        assert of(states) is spec_5_2(states), states


def forced_moves():
    """From every joint state an open or successful want can be in, each single move and what 5.2 then forces."""
    forced = {(_W.NEW, spec_5_2(states)) for n in (1, 2, 3) for states in product(STATES, repeat=n)}
    for n in (1, 2, 3):
        for states in product(STATES, repeat=n):
            before = spec_5_2(states)
            if before in ENDED_FOR_GOOD:
                continue
            for place, state in enumerate(states):
                for moved in canonical_moves(state):
                    after = spec_5_2((*states[:place], moved, *states[place + 1 :]))
                    if after is not before:
                        forced.add((before, after))
    return forced


def reopened(moves):
    """A successful want moves only when a taint opens it, by a cause of its own (rule 5.3)."""
    return {
        (move.from_state, move.to_state)
        for move in moves
        if move.from_state is not None and (move.on in WANT_CAUSE_OF_STATE.values() or move.on is WantCause.REOPENED)
    }


def test_the_table_has_exactly_the_moves_that_the_refs_force():
    """Rules 5.2, 5.3"""
    assert reopened(WANT) == forced_moves()


def test_several_refs_moving_in_one_event_force_nothing_else():
    """One success may concern many refs, and what follows from it others; wants look once, when all is settled (rule 5.2)."""
    for states in product(STATES, repeat=3):
        before = spec_5_2(states)
        if before in ENDED_FOR_GOOD:
            continue
        for first, second in combinations(range(3), 2):
            for moved_first, moved_second in product(canonical_moves(states[first]), canonical_moves(states[second])):
                together = list(states)
                together[first], together[second] = moved_first, moved_second
                after = spec_5_2(together)
                assert after is before or (before, after) in reopened(WANT), (states, together)


def test_a_ref_has_moves_from_every_state_it_can_have():
    assert all(canonical_moves(state) for state in STATES)
