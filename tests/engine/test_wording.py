"""Times in sentences, for every number that a log may hold."""

from __future__ import annotations

import pytest

from databuild_dagster.engine import wording
from databuild_dagster.model.wording import FIRST_TIME, LAST_TIME, has_date

DATABASES = ("sqlite",)


@pytest.mark.parametrize(
    ("at", "words"),
    [
        (0.0, "1970-01-01T00:00:00Z"),
        (FIRST_TIME, "1-01-01T00:00:00Z"),
        (LAST_TIME, "9999-12-31T23:59:59Z"),
        (LAST_TIME + 1, "after the year 9999"),
        (8.6e18, "after the year 9999"),
        (float("inf"), "after the year 9999"),
        (FIRST_TIME - 1, "before the year 1"),
        (float("-inf"), "before the year 1"),
        (float("nan"), "at no time"),
    ],
)
def test_every_time_can_be_written(at, words):
    """Rule 3.5: what one old want says must not keep the others from being listed."""
    assert wording.when(at).lstrip("0") == words
    assert wording.exactly(at).lstrip("0") == words
    assert has_date(at) is words.endswith("Z")
