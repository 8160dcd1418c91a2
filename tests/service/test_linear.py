"""The search for an order of operations: compared with every order there is, and shown faults."""

from __future__ import annotations

from itertools import permutations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support import fixtures  # noqa: F401  (the profiles)

from .linear import Operation, first_fault
from .registers import Readers, pauses, readers


def number_register(state, operation):
    """A register of numbers: `write` and `read`."""
    if operation.what == "write":
        yield operation.facts
    elif operation.facts == state:
        yield state


def some_order_explains(operations):
    """By trying each: sure operations all, others or not, none before one that was answered before its call."""
    sure = [number for number, operation in enumerate(operations) if operation.is_sure]
    for order in permutations(range(len(operations))):
        for length in range(len(sure), len(order) + 1):
            chosen = order[:length]
            if not set(sure) <= set(chosen):
                continue
            in_time = all(
                operations[later].answered >= operations[earlier].called
                for place, earlier in enumerate(chosen)
                for later in chosen[place + 1 :]
            )
            if in_time and explains([operations[number] for number in chosen]):
                return True
    return False


def explains(operations):
    states = {0}
    for operation in operations:
        states = {after for state in states for after in number_register(state, operation)}
    return bool(states)


moments = st.integers(0, 8)
some_operations = st.lists(
    st.builds(
        lambda what, number, called, length, is_sure: Operation(
            what, called, called + length + 0.5, number, is_sure or what == "read"
        ),
        st.sampled_from(["read", "write"]),
        st.integers(0, 2),
        moments,
        moments,
        st.booleans(),
    ),
    max_size=5,
)


@given(some_operations)
def test_the_search_finds_an_order_exactly_if_there_is_one(operations):
    fault = first_fault(operations, 0, number_register)

    assert (fault is None) == some_order_explains(operations)


PUBLISHED = Operation("publish", 1.0, 2.0, "u1")


@pytest.mark.parametrize(
    ("operations", "fault"),
    [
        ([PUBLISHED, Operation("sees", 1.5, 1.6, "u1")], None),
        ([PUBLISHED, Operation("sees", 0.5, 0.6, "u1")], "sees"),
        ([PUBLISHED, Operation("sees", 2.5, 2.6, "u2")], "sees"),
        ([PUBLISHED, Operation("sees nothing", 2.5, 2.6)], "sees nothing"),
        ([PUBLISHED, Operation("taint", 3.0, 4.0, "t"), Operation("sees", 3.5, 5.0, "u1")], None),
        ([PUBLISHED, Operation("taint", 3.0, 4.0, "t"), Operation("sees", 4.5, 5.0, "u1")], "sees"),
        ([PUBLISHED, Operation("taint", 3.0, 4.0, "t", False), Operation("sees", 4.5, 5.0, "u1")], None),
        (
            [
                PUBLISHED,
                Operation("taint", 3.0, 4.0, "t"),
                Operation("untaint", 5.0, 6.0, "t"),
                Operation("sees", 7, 8, "u1"),
            ],
            None,
        ),
        ([PUBLISHED, Operation("revert", 5.0, 6.0, "u1")], "revert"),
        ([PUBLISHED, Operation("publish", 3.0, 4.0, "u2"), Operation("sees", 5.0, 6.0, "u1")], "sees"),
        (
            [
                PUBLISHED,
                Operation("publish", 3.0, 4.0, "u2"),
                Operation("revert", 5.0, 6.0, "u1"),
                Operation("sees something", 7.0, 8.0),
                Operation("sees", 7.0, 8.0, "u1"),
            ],
            None,
        ),
    ],
)
def test_readers_see_the_last_trusted_instance(operations, fault):
    found = first_fault(operations, Readers(), readers)

    assert (found and found.what) == fault


@pytest.mark.parametrize(
    ("operations", "fault"),
    [
        ([Operation("pause", 1, 2), Operation("sees no pause", 1.5, 3)], None),
        ([Operation("pause", 1, 2), Operation("sees no pause", 2.5, 3)], "sees no pause"),
        ([Operation("pause", 1, 2), Operation("pause", 3, 4)], "pause"),
        ([Operation("pause", 1, 2, None, False), Operation("pause", 3, 4)], None),
        ([Operation("pause", 1, 2), Operation("resume", 1, 4), Operation("sees a pause", 5, 6)], "sees a pause"),
    ],
)
def test_a_pause_holds_from_its_answer_to_the_resume(operations, fault):
    found = first_fault(operations, False, pauses)

    assert (found and found.what) == fault
