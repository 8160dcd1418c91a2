"""Texts of a url or of a form become values."""

from __future__ import annotations

import pytest

from databuild_dagster.model.commands import CreateWants
from databuild_dagster.model.errors import InvalidRequest
from databuild_dagster.model.records import asked_of
from databuild_dagster.web.parameters import (
    RepeatedParameter,
    asked,
    choice,
    flag,
    number,
    read_fields,
    read_parameters,
    ref,
)

PRIORITY = number("priority", "Higher is more urgent.", 0, -20, 20)


@pytest.mark.parametrize(("text", "value"), [("-20", -20), ("-5", -5), ("0", 0), ("20", 20)])
def test_a_number_may_be_below_zero_within_its_bounds(text: str, value: int) -> None:
    assert read_fields([PRIORITY], [("priority", text)]) == {"priority": value}


@pytest.mark.parametrize("text", ["-21", "21", "--5", "-", "5-", "-٣", "- 5", "-100000", "²", "1e3"])
def test_a_text_that_is_no_number_within_the_bounds_is_refused(text: str) -> None:
    with pytest.raises(InvalidRequest, match="from -20 to 20"):
        read_fields([PRIORITY], [("priority", text)])


@pytest.mark.parametrize(
    ("query", "why"),
    [
        ([("state", "odd"), ("ref", "a")], "state is 'odd', which is not possible: it must be one of New, Idle"),
        ([("open", "maybe"), ("ref", "a")], "open is 'maybe', which is not possible: it must be true or false"),
        ([("ref", "orders\0x")], r"ref is .*: it must be at most 1024 printable characters"),
        ([("ref", "x" * 2_000)], r"ref is .*: it must be at most 1024 printable characters"),
        ([], "ref is '', which is not possible: it is required"),
        ([("sate", "New")], "a parameter is 'sate', .* this url has the parameters ref, state, open"),
    ],
)
def test_a_query_that_cannot_be_is_refused_with_the_reason(query: list[tuple[str, str]], why: str) -> None:
    parameters = [ref("ref", "", required=True), choice("state", "", ["New", "Idle"]), flag("open", "")]

    with pytest.raises(InvalidRequest, match=why):
        read_parameters(parameters, query, 9)


@pytest.mark.parametrize("second", ["1", "2"])
def test_a_parameter_that_is_given_twice_is_refused(second: str) -> None:
    """A filter of a proxy may read the first of them, and we the last."""
    query = [("priority", "1"), ("priority", second)]

    with pytest.raises(RepeatedParameter, match="priority is given 2 times"):
        read_parameters([PRIORITY], query, 21)


def test_each_field_of_a_want_that_a_person_gives_is_a_parameter() -> None:
    parameters = [asked(field) for field in asked_of(CreateWants)]

    found = read_fields(parameters, [("data_timestamp", "1970-01-01T01:00:00Z"), ("ttl", "none"), ("priority", "-2")])

    assert found == {
        "comment": "",
        "priority": -2,
        "ttl": None,
        "sla": None,
        "data_timestamp": 3600.0,
        "rebuild": False,
        "fresh": False,
        "fail_fast": False,
    }
