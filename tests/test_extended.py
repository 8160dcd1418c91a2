"""The list of what is left out names tests that there are."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.extended import EXTENDED


@pytest.mark.parametrize("file", EXTENDED)
def test_every_name_is_that_of_a_test(file: str) -> None:
    text = (Path(__file__).parent / f"{file}.py").read_text()
    assert [name for name in EXTENDED[file] if name.partition("[")[0] not in text] == []
