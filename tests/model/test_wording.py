"""Texts of other programs are quoted as parts of sentences."""

import pytest

from databuild_dagster.model.wording import MAX_QUOTED, number_in_words, numbers_cut, one_line, state_in_words

SENTENCE = "The disk of the build state is full. "
LETTERS = "x" * 400


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("It failed:\n  the disk is full.", "It failed: the disk is full."),
        (SENTENCE * 9, (SENTENCE * 8).strip()),
        (f"No. {LETTERS}", f"No. {LETTERS}"[:MAX_QUOTED] + "…"),
    ],
)
def test_a_long_text_is_cut_at_the_end_of_a_sentence_or_with_an_ellipsis(text, shown):
    assert one_line(text) == shown


def test_a_long_number_in_a_text_is_cut_and_the_sentence_after_it_stays():
    assert numbers_cut(f"{'9' * 4000} is too large.") == f"{'9' * 40}… (4,000 digits) is too large."
    assert numbers_cut(f"{'9' * 40} is too large.") == f"{'9' * 40} is too large."


@pytest.mark.parametrize(
    ("number", "words"),
    [
        pytest.param(10**40 - 1, "9" * 40, id="forty digits"),
        pytest.param(-1.5, "-1.5", id="a fraction"),
        pytest.param(10**5000, "a number of 5,001 digits", id="above"),
        pytest.param(-(10**5000), "a negative number of 5,001 digits", id="below"),
    ],
)
def test_a_number_that_python_does_not_print_is_named_by_its_digits(number, words):
    assert number_in_words(number) == words


@pytest.mark.parametrize(("name", "words"), [("Live", "live"), ("UpForRetry", "up for retry"), ("missing", "missing")])
def test_a_state_is_shown_in_words(name, words):
    assert state_in_words(name) == words
