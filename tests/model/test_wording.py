"""Texts of other programs are quoted as parts of sentences."""

import pytest

from databuild_dagster.model.wording import MAX_QUOTED, one_line

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
