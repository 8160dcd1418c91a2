"""Ranges of keys: inclusive, in the order of the definition; a text that is a key is that key (rule 2.5)."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from databuild_dagster.model.refs import parse_ref
from databuild_dagster.model.selections import (
    SELECTABLE,
    STALE,
    STATE_WORDS,
    ListedKeys,
    keys_selected,
    may_be_selection,
)

#: Also keys that contain the dots or the star.
some_keys = st.lists(st.text(".*ab", min_size=1, max_size=6), min_size=1, max_size=8, unique=True)


def no_key(key: str) -> str:
    return f"{key!r} is no key."


@given(some_keys, st.data())
def test_a_range_has_the_keys_between_its_ends_with_both(keys: list[str], data: st.DataObject) -> None:
    first = data.draw(st.integers(0, len(keys) - 1))
    last = data.draw(st.integers(first, len(keys) - 1))
    text = f"{keys[first]}..{keys[last]}"

    selected = keys_selected(text, ListedKeys(keys), no_key)

    if text in keys:
        assert selected == [text]
    elif text.count("..") == 1 and "..." not in text:
        assert selected == keys[first : last + 1]
    else:
        # Several splits may have two keys as ends; one of them is meant.
        assert {selected[0], selected[-1]} <= {*keys}


@given(some_keys)
def test_a_text_that_is_a_key_is_that_key(keys: list[str]) -> None:
    for key in keys:
        assert keys_selected(key, ListedKeys(keys), no_key) == [key]


def test_a_star_is_all_keys_unless_it_is_one() -> None:
    assert keys_selected("*", ListedKeys(["a", "b"]), no_key) == ["a", "b"]
    assert keys_selected("*", ListedKeys(["a", "*"]), no_key) == ["*"]


def test_the_ends_of_a_range_may_contain_dots() -> None:
    versions = ["v1..v2", "v3", "v4..v5"]

    assert keys_selected("v1..v2..v4..v5", ListedKeys(versions), no_key) == versions
    assert keys_selected("v1..v2..v3", ListedKeys(versions), no_key) == ["v1..v2", "v3"]


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("c..a", "c comes after a; write the earlier one first."),
        ("a..z", "'z' is no key."),
        ("a..", "'' is no key."),
        ("..c", "'' is no key."),
        ("x", "'x' is no key."),
    ],
)
def test_a_range_without_two_ends_in_order_is_refused(text: str, why: str) -> None:
    with pytest.raises(ValueError, match=f"^{why}$"):
        keys_selected(text, ListedKeys(["a", "b", "c"]), no_key)


def test_only_a_text_with_dots_or_a_star_may_be_a_selection() -> None:
    """Other texts are refs, and cost no look at the definition."""
    names = ["a", "a@1", "a@1.2", "a@1*", "a@1..2", "a@*", "a@1|*", "a..b@1"]

    assert [name for name in names if may_be_selection(parse_ref(name))] == ["a@1..2", "a@*", "a@1|*"]


def test_every_selectable_state_is_a_state_or_stale() -> None:
    assert {*SELECTABLE} == {*STATE_WORDS.values(), STALE} - {"building"}
