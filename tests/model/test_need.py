"""The table of needs decides each combination of facts once, or it does not import (rules 5.4, 6.2, 11.1)."""

from __future__ import annotations

import pytest

from databuild_dagster.model.datasets import DatasetKind
from databuild_dagster.model.need import (
    DATA_OF_STATE,
    MAKER_OF_KIND,
    NEEDS,
    Action,
    Data,
    LeadsTo,
    Maker,
    Reason,
    Wanted,
    decided,
    need_of,
    wanted_as,
)
from databuild_dagster.model.states import SCHEDULABLE, InstanceState

DATABASES = ()


def test_a_table_without_a_row_is_refused():
    with pytest.raises(ValueError, match="no row for data live, maker job"):
        decided(NEEDS[1:])


def test_a_table_with_two_rows_for_the_same_facts_is_refused():
    with pytest.raises(ValueError, match="two rows for data live, maker job.*: it is live, and it failed"):
        decided([*NEEDS, NEEDS[0]._replace(reason=Reason.FAILED)])


def test_each_action_reason_and_way_on_is_used():
    assert {need.action for need in NEEDS} == set(Action)
    assert {need.reason for need in NEEDS} == set(Reason)
    assert {need.leads_to for need in NEEDS} == set(LeadsTo)


def test_each_state_and_each_kind_has_its_facts():
    assert DATA_OF_STATE.keys() == {None, *InstanceState}
    assert {state for state, data in DATA_OF_STATE.items() if data is Data.OPEN} == SCHEDULABLE
    assert MAKER_OF_KIND.keys() == {None, *DatasetKind}
    assert {kind for kind, maker in MAKER_OF_KIND.items() if maker is Maker.JOB} == {
        kind for kind in DatasetKind if kind.is_built
    }


def test_nothing_keeps_a_wanted_ref_whose_inputs_are_live():
    assert need_of(Data.OPEN).action is Action.BUILD
    assert [need.reason for need in NEEDS if need.action is Action.BUILD] == [Reason.DUE]


@pytest.mark.parametrize(
    ("n_open_wants", "until", "retry_at", "expected"),
    [
        (0, 0.0, None, Wanted.NO),
        (1, 10.0, None, Wanted.EXPIRED),
        (1, 10.0, 20.0, Wanted.EXPIRED),
        (1, 20.0, 20.0, Wanted.LATER),
        (1, 20.0, 10.0, Wanted.NOW),
        (1, 20.0, None, Wanted.NOW),
    ],
)
def test_a_ref_is_wanted_now_within_its_ttl_and_after_its_backoff(n_open_wants, until, retry_at, expected):
    """Rule 5.4: at the time 10."""
    assert wanted_as(n_open_wants, until, retry_at, 10.0) is expected
