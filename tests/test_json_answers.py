"""The JSON of the command line and of the API keeps its bytes (rules 15): golden files have what earlier code answered."""

from __future__ import annotations

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
    changed = [name for name, text in golden.items() if found[name] != text]
    assert changed == [], "python -m tests.support.json_answers writes them anew; fields may be added (rules 15)"
