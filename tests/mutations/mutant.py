"""A copy of the package without one guard, and the tests that run on it in a process of their own."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from .guards import Guard

ROOT = Path(__file__).parent.parent.parent
PACKAGE = "databuild_dagster"
#: A mutant may loop. What takes longer than this is no verdict.
MOST_SECONDS = 3000.0
#: A test that fails with one of these says that the mutant is no program, not that a guard is missing.
BROKEN = ("ImportError", "IndentationError", "ModuleNotFoundError", "NameError", "SyntaxError", "UnboundLocalError")


class BadGuard(Exception):
    """A row of the table that proves nothing."""


@dataclass(frozen=True)
class PytestRun:
    """The answer of pytest."""

    passed: tuple[str, ...]
    #: Test to the type of its exception.
    failed: dict[str, str]
    #: 0: all passed. 1: some failed.
    exit_code: int
    output: str


def without_guard(guard: Guard, source: str) -> str:
    """The file's source without the guard."""
    if (n := source.count(guard.text)) != 1:
        raise BadGuard(f"{guard.file} contains {guard.text!r} {n} times, not once: update the row of {guard.name!r}.")
    return source.replace(guard.text, guard.becomes)


@contextmanager
def package_copy(guard: Guard | None = None) -> Iterator[Path]:
    """A folder that contains a copy of the package, without the guard if one is given. The work tree is not touched."""
    with tempfile.TemporaryDirectory(prefix="databuild-mutant-") as folder:
        copy = Path(folder) / PACKAGE
        shutil.copytree(ROOT / PACKAGE, copy, ignore=shutil.ignore_patterns("__pycache__"))
        if guard is not None:
            path = copy / guard.file
            path.write_text(without_guard(guard, path.read_text()))
        yield Path(folder)


def run_tests(folder: Path, tests: Iterable[str], *, stop_at_first: bool) -> PytestRun:
    """Run tests of the work tree on the package in a folder."""
    report = folder / "report.json"
    arguments = [*tests, *(["--exitfirst"] if stop_at_first else [])]
    done = subprocess.run(
        [sys.executable, "-m", "tests.mutations.testing", str(folder), str(report), *arguments],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(folder), "PYTHONDONTWRITEBYTECODE": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=MOST_SECONDS,
    )
    if not report.exists():
        raise BadGuard(f"The tests did not start:\n{done.stdout}")
    found = json.loads(report.read_text())
    return PytestRun(tuple(found["passed"]), found["failed"], found["exit_code"], done.stdout)


def found_by(guard: Guard) -> str | None:
    """The test that fails without the guard; None if all pass. Raises `BadGuard`."""
    with package_copy(guard) as folder:
        run = run_tests(folder, guard.tests, stop_at_first=True)
    if run.exit_code == 0:
        return None
    if run.exit_code != 1 or not run.failed:
        raise BadGuard(f"pytest ended with {run.exit_code}:\n{run.output}")
    test, error = next(iter(run.failed.items()))
    if error in BROKEN:
        raise BadGuard(f"The mutant is no program, {test} raised {error}:\n{run.output}")
    return test


def not_green(guards: Iterable[Guard]) -> list[str]:
    """The faults of the guards' tests while every guard is in its place. Raises `BadGuard`."""
    # Sorted: pytest does not find the fixtures of a folder that it meets a second time.
    selections = sorted({test for guard in guards for test in guard.tests})
    if not selections:
        return []
    with package_copy() as folder:
        run = run_tests(folder, selections, stop_at_first=False)
    if run.exit_code not in (0, 1):
        raise BadGuard(f"pytest ended with {run.exit_code}:\n{run.output}")
    wrong = [f"{test} fails with every guard in its place ({error})." for test, error in run.failed.items()]
    idle = [
        selection
        for selection in selections
        if not any(test.startswith((f"{selection}::", f"{selection}[")) or test == selection for test in run.passed)
    ]
    return wrong + [f"{item} contains no test that passes." for item in idle]
