"""Refs are alike when they look alike and what is around them is alike, however many of these there are."""

from __future__ import annotations

from databuild_dagster.features.what_if import alike as module
from databuild_dagster.features.what_if.alike import find_alike

DAYS = [f"day@{number}" for number in range(3)]
MONTHS = {"month@1": DAYS, "month@2": ["day@3"]}


def test_consumers_of_one_day_and_of_three_alike_days_are_alike():
    refs = dict.fromkeys([*DAYS, "day@3"], "day") | dict.fromkeys(MONTHS, "month")

    found = find_alike(refs, MONTHS)

    assert found.other == {"day@1": "day@0", "day@2": "day@0", "day@3": "day@0", "month@2": "month@1"}


def test_a_longer_chain_than_the_rounds_has_nothing_alike():
    chain = {f"a@{number}": [f"a@{number - 1}"] for number in range(3 * module.MAX_ROUNDS)}

    assert find_alike(dict.fromkeys(chain, "a"), chain).other == {}
    assert find_alike(dict.fromkeys([*chain, "b@1", "b@2"], "a")).n_others() == {"a@0": len(chain) + 1}
