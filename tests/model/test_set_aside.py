"""When two reasons are the same, and what the failures of several refs have in common (rules 11.7, 6.15)."""

from __future__ import annotations

import pytest

from databuild_dagster.model.refs import Ref
from databuild_dagster.model.set_aside import MAX_CAUSE, cause_of


@pytest.mark.parametrize(
    ("first", "second"),
    [
        pytest.param(("no rows of eu", "a@eu"), ("no rows of us", "a@us"), id="a key"),
        pytest.param(("eu has none", "a@eu|2024-01-01"), ("us has none", "a@us|2024-01-02"), id="a key of a dimension"),
        pytest.param(("no /tmp/ab/c.csv: gone", "a@1"), ("no /srv/xyz.csv: gone", "a@1"), id="a path"),
        pytest.param(("cannot read s3://a/b/c", "a@1"), ("cannot read s3://a/d", "a@1"), id="a url"),
        pytest.param(("row 17 is bad", "a@1"), ("row 1804 is bad", "a@1"), id="a number"),
        pytest.param(
            ("job run 01a2257d-df17-7774-9d28-2331d74637d0", "a@1"),
            ("job run 01a2257d-e2fd-7315-9401-a8362d73a624", "a@1"),
            id="a uuid",
        ),
    ],
)
def test_a_cause_leaves_out_what_differs_from_ref_to_ref(first: tuple[str, str], second: tuple[str, str]) -> None:
    assert cause_of(first[0], Ref(first[1])) == cause_of(second[0], Ref(second[1]))


def test_other_words_are_another_cause_and_a_key_inside_of_a_word_stays() -> None:
    assert cause_of("late", Ref("a@e")) != cause_of("lost", Ref("a@e"))
    assert cause_of("late", Ref("a@e")) == "late"
    assert cause_of("1 of 2 and/or more", Ref("a")) == "# of # and/or more"


def test_a_cause_is_short() -> None:
    assert len(cause_of("word " * 1_000, Ref("a"))) == MAX_CAUSE
