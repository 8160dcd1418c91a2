"""Words that hide the subject of a sentence are rare in the package and absent from its tests."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
#: In two halves, so that this file does not count.
HIDING = ["who" "ever", "what" "ever", "no" "body", "some" "body", "to" "ld", "a" "new"]  # fmt: skip
#: As a word of a sentence, and as a part of a name.
HIDING_WORD = re.compile(rf"(?<![a-z])({'|'.join(HIDING)})(?![a-z])", re.IGNORECASE)
NAMELESS_VARIABLE = re.compile(r"\b(for each in\b|lambda each:)")
MOST_HIDING_WORDS = {"databuild_dagster": 40, "tests": 0, "tools": 0, "bench": 0, "examples": 0}
SUFFIXES = {".py", ".sh", ".txt"}


def texts_of(folder: str) -> dict[str, str]:
    files = [path for path in (ROOT / folder).rglob("*") if path.suffix in SUFFIXES]
    return {path.relative_to(ROOT).as_posix(): path.read_text() for path in files}


@pytest.mark.parametrize("folder", MOST_HIDING_WORDS)
def test_words_that_hide_the_subject_are_rare(folder: str) -> None:
    texts = texts_of(folder)

    found = Counter({name: len(HIDING_WORD.findall(text)) for name, text in texts.items()})

    assert texts
    assert found.total() <= MOST_HIDING_WORDS[folder], found.most_common(10)


@pytest.mark.parametrize("folder", MOST_HIDING_WORDS)
def test_a_loop_variable_is_named_for_its_value(folder: str) -> None:
    pattern_itself = "tests/test_words.py"

    found = [name for name, text in texts_of(folder).items() if NAMELESS_VARIABLE.search(text)]

    assert [name for name in found if name != pattern_itself] == []
