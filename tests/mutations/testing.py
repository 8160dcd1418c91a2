"""Runs pytest on the package of a given folder, and writes down which tests passed and which failed.

    python -m tests.mutations.testing FOLDER REPORT [pytest's arguments…]

`pythonpath` of pyproject.toml puts the work tree before PYTHONPATH, so the package is imported before pytest starts.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

ARGUMENTS = (
    *("-p", "no:randomly", "-p", "no:cacheprovider"),
    "--quiet",
    "--timeout=120",
    # A rule that a mutation takes out does not depend on the database.
    *("-k", "not postgres"),
)


class Recorder:
    """A plugin of pytest."""

    def __init__(self) -> None:
        self.passed: list[str] = []
        self.failed: dict[str, str] = {}

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(self, item, call):
        report = yield
        if report.failed:
            self.failed.setdefault(item.nodeid, call.excinfo.typename)
        elif report.passed and report.when == "call":
            self.passed.append(item.nodeid)
        return report


def main(folder: str, report: str, *arguments: str) -> int:
    sys.path.insert(0, folder)
    import databuild_dagster

    assert Path(databuild_dagster.__file__).is_relative_to(folder), databuild_dagster.__file__
    recorder = Recorder()
    exit_code = int(pytest.main([*ARGUMENTS, *arguments], plugins=[recorder]))
    found = {"exit_code": exit_code, "passed": recorder.passed, "failed": recorder.failed}
    Path(report).write_text(json.dumps(found))
    return exit_code


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
