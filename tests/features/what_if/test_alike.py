"""Refs are alike when they look alike and what is around them is alike, however many of these there are."""

from __future__ import annotations

from databuild_dagster.features.what_if import alike as module
from databuild_dagster.features.what_if.alike import find_alike

DAYS = [f"day@{number}" for number in range(3)]
MONTHS = {"month@1": DAYS, "month@2": ["day@3"]}


def test_refs_without_inputs_or_consumers_are_alike_by_their_traits():
    found = find_alike({"a@1": "x", "a@2": "x", "a@3": "y"})

    assert found.other == {"a@2": "a@1"}
    assert found.ones_for(["a@3", "a@2", "a@1"]) == ("a@3", "a@1")
    assert found.all_of(["a@1"]) == ("a@1", "a@2")
    assert found.n_others() == {"a@1": 1}


def test_consumers_of_one_day_and_of_three_alike_days_are_alike():
    refs = dict.fromkeys([*DAYS, "day@3"], "day") | dict.fromkeys(MONTHS, "month")

    found = find_alike(refs, MONTHS)

    assert found.other == {"day@1": "day@0", "day@2": "day@0", "day@3": "day@0", "month@2": "month@1"}


def test_a_ref_that_differs_separates_all_that_are_linked_to_it():
    refs = dict.fromkeys([*DAYS, "day@3"], "day") | dict.fromkeys(MONTHS, "month") | {"day@1": None}

    found = find_alike(refs, MONTHS)

    assert found.other == {"day@2": "day@0"}


def test_a_longer_chain_than_the_rounds_has_nothing_alike():
    chain = {f"a@{number}": [f"a@{number - 1}"] for number in range(3 * module.MAX_ROUNDS)}

    assert find_alike(dict.fromkeys(chain, "a"), chain).other == {}
    assert find_alike(dict.fromkeys([*chain, "b@1", "b@2"], "a")).n_others() == {"a@0": len(chain) + 1}
