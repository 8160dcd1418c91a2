"""The database's format as every statement needs it."""

from __future__ import annotations

from databuild_dagster.model.states import FAILING
from databuild_dagster.store.format import one_of


def test_a_list_of_states_is_one_text_in_every_process():
    assert one_of(FAILING) == "('Failed', 'UpstreamFailed')"
