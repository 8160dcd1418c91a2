"""What the report of an operation shows to others: numbers and rules, and neither rows nor other texts."""

from __future__ import annotations

import json
from typing import Any

import pytest

from databuild_dagster.engine.wording import json_of
from databuild_dagster.features.operations.shapes import MAX_NUMBERS, MAX_OFFENDING, MAX_RULES, error_of, report_shape

SECRET = "a row of the data"


def of_validate(n_partitions: int = 1) -> dict[str, Any]:
    """As `validate` reports."""
    partitions = [
        {"ref": f"sales@{n}", "uuid": "u", "offending": 2, "samples": [{"name": SECRET}]} for n in range(n_partitions)
    ]
    rule = {"rule": "amount > 0", "offending": 2 * n_partitions, "n_partitions": n_partitions, "partitions": partitions}
    return {
        "ok": False,
        "rows": 10,
        "rules": [{**rule, "samples": [{"name": SECRET}]}],
        "failed": ["2024-01-01"],
        "note": SECRET,
    }


def test_a_report_has_its_rules_and_numbers_and_no_row() -> None:
    shape = json_of(report_shape(of_validate()))

    assert shape == {
        "ok": False,
        "rules": [
            {
                "rule": "amount > 0",
                "offending": 2,
                "n_partitions": 1,
                "partitions": [{"ref": "sales@0", "offending": 2}],
            }
        ],
        "numbers": {"rows": 10, "failed": 1},
    }
    assert SECRET not in json.dumps(shape)


def test_a_large_report_is_cut() -> None:
    report = of_validate(MAX_OFFENDING + 1)
    many = {"rules": report["rules"] * (MAX_RULES + 1), **{f"number {n}": n for n in range(MAX_NUMBERS + 1)}}

    shape = report_shape(many)

    assert shape is not None
    assert (len(shape.rules), len(shape.numbers)) == (MAX_RULES, MAX_NUMBERS)
    assert (len(shape.rules[0].partitions), shape.rules[0].n_partitions) == (
        MAX_OFFENDING,
        MAX_OFFENDING + 1,
    )


@pytest.mark.parametrize(
    "report", [None, SECRET, [SECRET], {}, {"text": SECRET}, {"rules": SECRET}, {"rules": [SECRET]}]
)
def test_a_report_without_rules_and_numbers_shows_no_text(report: Any) -> None:
    shape = json_of(report_shape(report))

    assert SECRET not in json.dumps(shape)


def test_a_report_of_another_shape_is_no_error() -> None:
    rules = [{"rule": 1, "offending": 1}, {"rule": "x"}, {"rule": "y", "offending": 1, "partitions": [1, {"ref": 2}]}]

    shape = report_shape({"ok": "yes", "rules": rules})

    assert shape is not None
    assert (shape.ok, [rule.rule for rule in shape.rules]) == (None, ["y"])


@pytest.mark.parametrize(
    ("detail", "shown"),
    [({"error": "it raised"}, "it raised"), (None, ""), ({"rows": [SECRET]}, "databuild operation")],
)
def test_the_error_of_a_job_is_shown_and_no_other_detail(detail: Any, shown: str) -> None:
    error = error_of(detail)

    assert shown in error
    assert SECRET not in error
