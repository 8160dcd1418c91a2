"""The JSON of the command line and of the API keeps its bytes (rules 15): golden files have what earlier code answered."""

from __future__ import annotations

from collections.abc import Iterator
from difflib import unified_diff
from pathlib import Path

import pytest

from tests.support.json_answers import GOLDEN, answers

pytestmark = [
    pytest.mark.feature(name)
    for name in ("clean", "compare", "erase", "lots", "notices", "operations", "outages", "what_if")
]


def test_every_answer_has_the_bytes_of_its_golden_file(tmp_path: Path) -> None:
    golden = {str(path.relative_to(GOLDEN)): path.read_text() for path in GOLDEN.glob("*/*.txt")}

    found = answers(tmp_path)

    assert set(found) == set(golden)
    changed = [
        line for name, text in golden.items() if found[name] != text for line in _changes(name, text, found[name])
    ]
    assert not changed, "\n".join([*changed, "python -m tests.support.json_answers writes them anew (rules 15)"])


def _changes(name: str, before: str, after: str) -> Iterator[str]:
    fields = (text.replace("\n", ", ").split(", ") for text in (before, after))
    return unified_diff(*fields, name, name, n=2, lineterm="")
