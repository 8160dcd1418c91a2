"""The state of a request follows from the states of its wants (rules 14, 15)."""

from __future__ import annotations

import pytest

from databuild_dagster.engine.why.want_report import request_state
from databuild_dagster.model.states import WantState


@pytest.mark.parametrize(
    ("states", "state"),
    [
        ({WantState.IDLE}, "Received"),
        ({WantState.IDLE, WantState.FAILED}, "Executing"),
        ({WantState.SUCCESSFUL}, "Completed"),
        ({WantState.SUCCESSFUL, WantState.UPSTREAM_FAILED, WantState.CANCELED}, "Failed"),
        ({WantState.SUCCESSFUL, WantState.EXPIRED}, "Canceled"),
    ],
)
def test_the_state_of_a_request_follows_from_the_states_of_its_wants(states: set[WantState], state: str) -> None:
    assert request_state(states) == state
