"""The state of an arc's lot is a table: every case has one rule (rule 10.5)."""

from __future__ import annotations

import pytest

from databuild_dagster.model.states import ARC_RULES, ArcState, InstanceState, arc_state

DATABASES = ()


@pytest.mark.parametrize("has_data", [True, False])
@pytest.mark.parametrize("state", [None, *InstanceState], ids=str)
def test_every_case_has_exactly_one_rule(state, has_data):
    fitting = [rule for rule in ARC_RULES if rule.state is state and rule.has_data in (None, has_data)]

    assert len(fitting) == 1
    assert arc_state(state, has_data=has_data) is fitting[0].is_then


def test_the_states_are_those_of_the_spec():
    """ArcRule 10.5"""
    by_state = {state: {rule.state for rule in ARC_RULES if rule.is_then is state} for state in ArcState}

    assert by_state[ArcState.RUNNING] == {InstanceState.BUILDING, InstanceState.UPSTREAM_BUILDING}
    assert by_state[ArcState.COMPLETE] == {InstanceState.LIVE}
    assert {InstanceState.FAILED, InstanceState.UP_FOR_RETRY} <= by_state[ArcState.PARTIAL]
    assert None in by_state[ArcState.MISSING]
