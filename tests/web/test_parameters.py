"""Texts of a url or of a form become values."""

from __future__ import annotations

import pytest

from databuild_dagster.model.errors import InvalidRequest
from databuild_dagster.web.parameters import RepeatedParameter, number, read_fields, read_parameters

PRIORITY = number("priority", "Higher is more urgent.", 0, -20, 20)


@pytest.mark.parametrize(("text", "value"), [("-20", -20), ("-5", -5), ("0", 0), ("20", 20)])
def test_a_number_may_be_below_zero_within_its_bounds(text: str, value: int) -> None:
    assert read_fields([PRIORITY], [("priority", text)]) == {"priority": value}


@pytest.mark.parametrize("text", ["-21", "21", "--5", "-", "5-", "-٣", "- 5", "-100000"])
def test_a_text_that_is_no_number_within_the_bounds_is_refused(text: str) -> None:
    with pytest.raises(InvalidRequest, match="from -20 to 20"):
        read_fields([PRIORITY], [("priority", text)])


@pytest.mark.parametrize("second", ["1", "2"])
def test_a_parameter_that_is_given_twice_is_refused(second: str) -> None:
    """A filter of a proxy may read the first of them, and we the last."""
    query = [("priority", "1"), ("priority", second)]

    with pytest.raises(RepeatedParameter, match="priority is given 2 times"):
        read_parameters([PRIORITY], query, 21)
