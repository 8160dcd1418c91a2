"""`make mutations` can be believed: its rows are up to date, and it tells a guard that survives from one that does not."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.mutations.guards import GUARDS
from tests.mutations.mutant import PACKAGE, ROOT, BadGuard, found_by, without_guard
from tests.mutations.verdict import Verdict, conclude, try_guard

#: A row with cheap tests, to be spoilt.
CHEAP = next(guard for guard in GUARDS if guard.file == "model/states.py")


@pytest.mark.parametrize("guard", GUARDS, ids=lambda guard: guard.name)
def test_a_guard_is_in_the_package_once_and_can_be_taken_out(guard):
    source = (ROOT / PACKAGE / guard.file).read_text()

    mutant = without_guard(guard, source)

    assert mutant != source
    compile(mutant, guard.file, "exec")


@pytest.mark.parametrize("test", sorted({test for guard in GUARDS for test in guard.tests}))
def test_the_tests_of_a_guard_exist(test):
    file, _, name = test.partition("::")

    assert f"def {name or 'test_'}" in (ROOT / file).read_text()


def test_every_guard_has_a_name_of_its_own():
    assert len({guard.name for guard in GUARDS}) == len(GUARDS)


@pytest.mark.long("pytest runs on a copy of the package")
def test_a_guard_that_no_test_misses_survives():
    harmless = replace(CHEAP, becomes=CHEAP.text.replace("failed", "bool(failed)"))

    assert found_by(harmless) is None


@pytest.mark.long("pytest runs on a copy of the package")
def test_a_mutant_that_is_no_program_is_no_proof():
    broken = replace(CHEAP, becomes=CHEAP.text.replace("failed", "no_such_name"))

    with pytest.raises(BadGuard, match="no program"):
        found_by(broken)


def test_a_row_whose_text_has_changed_is_refused():
    stale = replace(CHEAP, text=CHEAP.text.replace("failed", "has_failed"))

    with pytest.raises(BadGuard, match="0 times, not once: update the row"):
        without_guard(stale, (ROOT / PACKAGE / stale.file).read_text())


def test_a_row_that_is_out_of_date_fails_make_mutations(capsys):
    stale = replace(CHEAP, text=CHEAP.text.replace("failed", "has_failed"))

    exit_code = conclude({"found": Verdict("a test", 1.0), stale.name: try_guard(stale)}, seconds=3.0)

    assert exit_code == 2
    assert capsys.readouterr().out.endswith("\nFAILED: 2 guards in 3 s; 0 survived, 1 out of date.\n")


def test_a_guard_that_survives_fails_make_mutations(capsys):
    exit_code = conclude({"found": Verdict("a test", 1.0), "missed by none": Verdict(None, 1.0)}, seconds=3.0)

    assert exit_code == 1
    assert capsys.readouterr().out.endswith("\nFAILED: 2 guards in 3 s; 1 survived.\n")


def test_make_mutations_passes_when_each_guard_is_missed(capsys):
    assert conclude({"found": Verdict("a test", 1.0)}, seconds=3.0) == 0
    assert capsys.readouterr().out == "\npassed: 1 guards in 3 s; 0 survived.\n"
