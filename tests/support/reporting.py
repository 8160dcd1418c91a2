"""The report of a run: each failure at once; at the end how long it took, its slowest tests and folders, what it left out.

With `--record=FILE` each test that has ended is a line of JSON in the file, so that a run that is stopped keeps what it had.
"""

from __future__ import annotations

import json
import time
from collections import Counter
from pathlib import Path

import pytest

N_SLOWEST = 20

_started = time.monotonic()
_left_out: dict[str, None] = {}
_left_out_folders: dict[str, None] = {}
_seconds: Counter[str] = Counter()
_terminals: list[pytest.TerminalReporter] = []
_failures: dict[str, str] = {}


def pytest_sessionstart(session: pytest.Session) -> None:
    """The controller reports for its workers."""
    terminal = session.config.pluginmanager.get_plugin("terminalreporter")
    if terminal is not None and not hasattr(session.config, "workerinput"):
        _terminals.append(terminal)


def note_left_out(items: list[pytest.Item]) -> None:
    """Say at the end that these tests were left out."""
    _left_out.update(dict.fromkeys(item.nodeid for item in items))


def note_left_out_folder(path: str) -> None:
    """Say at the end that the tests of a folder, or a file, were not even collected."""
    _left_out_folders[path] = None


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    _seconds[report.nodeid] += report.duration
    if report.failed:
        crash = getattr(report.longrepr, "reprcrash", None)
        why = str(report.longrepr) if crash is None else crash.message
        _failures[report.nodeid] = f"{report.when}: {why.strip().partition(chr(10))[0][:300]}"
    for terminal in _terminals if report.when == "teardown" else ():
        if (file := terminal.config.getoption("--record")) is not None:
            _record(Path(file), report)
    for terminal in _terminals if report.failed else ():
        # A run that is stopped, by CI's time for example, has no end that could name its failures.
        terminal.write_line(f"\nFAILED at {report.when}: {report.nodeid}", red=True)
    for terminal in _terminals if report.outcome == "rerun" else ():
        terminal.write_line(f"\nFAILED at {report.when}, and is run once more: {report.nodeid}", yellow=True)
        # Only the failures of the last run are printed at the end.
        terminal.write_line(report.longreprtext)


def _record(file: Path, report: pytest.TestReport) -> None:
    # pytest-xdist appends the group of a test, which is its file.
    path = report.nodeid.partition("::")[0]
    test = report.nodeid.removesuffix("@" + path.removeprefix("tests/"))
    line = {"test": test, "seconds": round(_seconds[report.nodeid], 2), "failure": _failures.pop(report.nodeid, None)}
    with file.open("a") as out:
        print(json.dumps(line), file=out)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    terminalreporter.section(f"{N_SLOWEST} slowest tests")
    for nodeid, seconds in _seconds.most_common(N_SLOWEST):
        terminalreporter.write_line(f"{seconds:7.1f} s  {nodeid}")
    terminalreporter.section("seconds by folder, summed over the workers")
    for folder, seconds in _by_folder().most_common():
        terminalreporter.write_line(f"{seconds:7.0f} s  {folder}")
    _report_left_out(terminalreporter, config)
    minutes, seconds = divmod(round(time.monotonic() - _started), 60)
    terminalreporter.section(f"took {minutes} min {seconds:02} s")


def _report_left_out(terminal: pytest.TerminalReporter, config: pytest.Config) -> None:
    left_out, folders = getattr(config, "left_out_by_workers", None) or (list(_left_out), list(_left_out_folders))
    if left_out or folders:
        is_mission = config.getoption("--mission")
        terminal.section(f"left out: `make {'test-all' if is_mission else 'test-long'}` runs the tests")
        for folder, n in sorted(Counter(map(_folder_of, left_out)).items()):
            terminal.write_line(f"{n:7} tests of {folder}")
        if folders:
            terminal.write_line(f"    all tests of {', '.join(sorted(folders))}")


def _by_folder() -> Counter[str]:
    folders: Counter[str] = Counter()
    for nodeid, seconds in _seconds.items():
        folders[_folder_of(nodeid)] += seconds  # type: ignore[assignment]
    return folders


def _folder_of(nodeid: str) -> str:
    return "/".join(nodeid.partition("::")[0].split("/")[:2])


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    output = getattr(session.config, "workeroutput", None)
    if output is not None:
        output["left_out"] = (list(_left_out), list(_left_out_folders))


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: object) -> None:
    """Workers do the collection, so the controller learns from them what was left out."""
    output = getattr(node, "workeroutput", None)
    config = getattr(node, "config", None)
    if output and config is not None and output.get("left_out"):
        config.left_out_by_workers = output["left_out"]
