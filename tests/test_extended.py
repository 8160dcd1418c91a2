"""The list of what is left out names tests that there are."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.extended import EXTENDED, is_extended


@pytest.mark.parametrize("file", EXTENDED)
def test_every_name_is_that_of_a_test(file: str) -> None:
    text = (Path(__file__).parent / f"{file}.py").read_text()
    assert [name for name in EXTENDED[file] if name.partition("[")[0] not in text] == []


def test_a_name_stands_for_all_of_its_parameters_unless_it_says_which() -> None:
    assert is_extended("e2e/test_doors", "test_run_retries")
    assert is_extended("e2e/test_doors", "test_a_sensor")
    assert is_extended("e2e/test_doors", "test_a_backfill[multi-run]")
    assert not is_extended("e2e/test_doors", "test_a_backfill[single-run]")
    assert not is_extended("e2e/test_doors_bad_input", "test_a_sensor")
