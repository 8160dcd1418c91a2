"""A build as a person at a terminal sees it: its progress, and Ctrl-C."""

import os
import pty
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import suppress

import pytest

from tests.support.project import DEFINITIONS, MAX_SECONDS, PLAIN_DAGSTER_YAML, Project, wait_until

pytestmark = pytest.mark.long("a terminal and its Ctrl-C reach a process")

DAY = "orders@2024-01-30"


class Terminal:
    """A command on a terminal of its own, and what appears there."""

    def __init__(self, project: Project, *arguments: str) -> None:
        master, slave = pty.openpty()
        self.process = subprocess.Popen(
            [sys.executable, "-m", "databuild_dagster", *arguments],
            cwd=project.folder,
            env=project.environment | {"TERM": "xterm", "COLUMNS": "100"},
            stdin=slave,
            stdout=slave,
            stderr=slave,
            start_new_session=True,
        )
        os.close(slave)
        self._master = master
        self._seen = b""
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        # Linux answers with an error once the other end is closed.
        with suppress(OSError):
            while chunk := os.read(self._master, 4096):
                self._seen += chunk

    @property
    def text(self) -> str:
        return self._seen.decode(errors="replace")

    @property
    def lines(self) -> list[str]:
        """Without colors and moves of the cursor."""
        return re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", self.text).splitlines()

    def press_ctrl_c(self) -> None:
        """The kernel sends it to every process of the foreground."""
        os.killpg(self.process.pid, signal.SIGINT)

    def wait(self) -> int:
        code = self.process.wait(timeout=MAX_SECONDS)
        self._reader.join(timeout=MAX_SECONDS)
        return code


@pytest.fixture
def building(project: Project) -> Iterator[Terminal]:
    """A build whose function has begun, and does not end.

    It flushes what it prints: Dagster copies that with another process, which has only a moment after the function.
    """
    (project.home / "dagster.yaml").write_text(PLAIN_DAGSTER_YAML)
    project.define(
        DEFINITIONS.replace("    hold(context.", "    print('from an asset', flush=True)\n    hold(context.")
    )
    project.hold("2024-01-30")
    terminal = Terminal(project, "build", DAY)
    try:
        project.wait_until_held("2024-01-30")
        yield terminal
    finally:
        terminal.process.kill()
        terminal.process.wait(MAX_SECONDS)


def test_the_table_is_redrawn_while_a_function_runs(project: Project, building: Terminal) -> None:
    def seconds() -> set[str]:
        return set(re.findall(r"0 of 1 ref live, (\d+) s", building.text))

    before = seconds()
    wait_until(lambda: len(seconds() - before) >= 3, "three more seconds were shown")
    project.release("2024-01-30")

    assert building.wait() == 0
    *_, names, row, last = building.lines
    assert names.split() == ["asset", "live", "seconds"]
    assert row.split()[:2] == ["orders", "1"]
    assert re.fullmatch(r"1 of 1 ref live in [\d.]+ s: orders 1 \([\d.]+ s\)\.", last), last
    (log,) = (project.home / "logs").glob("build-*.log")
    assert "from an asset" in log.read_text()
    assert "from an asset" not in building.text


def test_ctrl_c_is_answered_in_a_word_however_often(project: Project, building: Terminal) -> None:
    """Rule 6.10"""
    building.press_ctrl_c()
    wait_until(lambda: "Stopping" in building.text, "it is said that it stops")
    for _ in range(5):
        building.press_ctrl_c()

    assert building.wait() == 130
    assert "Traceback" not in building.text
    assert project.ask("history", "--job-runs", "--open") == []
    assert project.ask("want", "list") == []
    assert project.is_sound()
    project.release("2024-01-30")
