"""Which operations may run beside which (rules 9.3, 9.4)."""

from __future__ import annotations

from itertools import product

import pytest

from databuild_dagster.model.errors import InvalidOperation, InvalidRequest
from databuild_dagster.model.operations.compatibility import (
    BESIDE,
    TypeRule,
    check_name,
    check_partitions,
    why_incompatible,
)
from databuild_dagster.model.operations.keys import OperationId

DATABASES = ()

ONE, MANY, SHY = TypeRule("one", False), TypeRule("many", True), TypeRule("shy", True, frozenset({"one"}))
RULES = {rule.name: rule for rule in (ONE, MANY, SHY)}


@pytest.mark.parametrize(
    ("starting", "about", "running", "may"),
    [
        (ONE, None, None, True),
        (ONE, None, ("one", None), False),
        (MANY, "x", ("many", "x"), False),
        (MANY, "x", ("many", "y"), True),
        (MANY, None, ("many", None), True),
        (MANY, "x", ("one", None), True),
        (SHY, None, ("one", None), False),
        (ONE, None, ("shy", None), False),
        (ONE, None, ("gone", None), True),
    ],
)
def test_which_operations_may_run_beside_each_other(starting, about, running, may):
    """Rules 9.3, 9.4"""
    there = [] if running is None else [OperationId("d", *running, 1)]

    assert (why_incompatible(starting, about, there, RULES) is None) is may


@pytest.mark.parametrize("facts", product([True, False], repeat=4))
def test_exactly_one_row_decides_about_two_operations(facts):
    """Rule 9.4"""
    assert sum(row.fits(*facts) for row in BESIDE) == 1


@pytest.mark.parametrize("name", ["", "x" * 201, "a\nb"])
def test_names_that_cannot_be(name):
    with pytest.raises(InvalidRequest):
        check_name("a type", name)


def test_more_partitions_than_one_value_holds_are_refused_with_the_number_that_it_holds():
    key_and_instance = {f"{n:010}": f"{n:036}" for n in range(400_000)}

    assert check_partitions("days", "one", key_and_instance, list(key_and_instance)[:300_000])
    with pytest.raises(InvalidOperation, match="400,000 partitions are too many, about 322,638 are possible"):
        check_partitions("days", "one", key_and_instance, None)
