"""The mark of a cell that stands for several partitions."""

from __future__ import annotations

import pytest

from databuild_dagster.calls.calendar import MARKS, mark_of_many, mark_of_state
from databuild_dagster.model.states import InstanceState


@pytest.mark.parametrize(
    ("counts", "mark"),
    [
        ({}, "missing"),
        ({"live": 3}, "live"),
        ({"live": 3, "empty": 1}, "empty"),
        ({"live": 3, "missing": 1}, "partial"),
        ({"live": 3, "missing": 0}, "live"),
        ({"missing": 5, "wanted": 1}, "wanted"),
        ({"live": 3, "missing": 1, "building": 1}, "building"),
        ({"live": 300, "failed": 1, "upstream failed": 4}, "failed"),
        ({"tainted": 1, "stale": 4}, "tainted"),
    ],
)
def test_a_cell_of_many_has_the_worst_mark_among_them(counts: dict[str, int], mark: str) -> None:
    assert mark_of_many(counts) == mark


@pytest.mark.parametrize("state", [None, *InstanceState])
def test_every_state_has_a_mark(state: InstanceState | None) -> None:
    assert mark_of_state(state, is_wanted=False) in MARKS
