"""docs/tutorial.md, word for word: what its reader types does what the page says, and prints what the page shows.

`make package` replays the first section with the installed wheel; this test replays the whole page in this environment.
"""

import json
import os
import shlex
import signal
import sys
from pathlib import Path

import pytest

from tests.e2e.conftest import Dagster
from tests.support import tutorial
from tests.support.child_environment import child_environment
from tests.support.command import run_python
from tests.support.free_port import free_port
from tests.support.processes import kill_processes_of, start_server

#: No command takes longer, on a busy machine too.
MAX_SECONDS = 300

MONTHS = ("monthly_climate@2010-01-01", "monthly_climate@2010-02-01")


def test_the_first_live_partition_takes_ten_typed_lines_at_most() -> None:
    lines = tutorial.typed(tutorial.steps(tutorial.FIRST))

    assert 5 < len(lines) <= tutorial.MAX_LINES
    assert lines[0].startswith("$ pip install ")
    assert any(line.startswith("$ databuild build ") for line in lines)


def test_a_line_that_was_not_printed_is_no_match() -> None:
    printed = "Building 3 refs.\n1 of 1 ref live in 2.5 s.\n"

    assert tutorial.is_shown("1 of 1 ref live in 0.4 s.", printed)
    assert not tutorial.is_shown("1 of 2 refs live in 0.4 s.", printed)
    assert not tutorial.is_shown("1 of 1 ref live in 0.4 s.\nBuilding 3 refs.", printed)


@pytest.mark.long("it types each command of the tutorial")
@pytest.mark.timeout(900)
def test_the_tutorial_prints_what_it_shows(tmp_path: Path) -> None:
    reader = Reader(tmp_path / "climate")
    printed = ""

    try:
        for step in tutorial.steps():
            match step.kind:
                case "commands":
                    printed = "".join(reader.type(command) for command in step.commands)
                case "printed":
                    assert tutorial.is_shown(step.text, printed), f"{step.text}\n--- is not in ---\n{printed}"
                case "mend":
                    tutorial.mend(reader.folder, step.text)
                case _ if step.is_asset:
                    tutorial.add_asset(reader.folder, step.text)
                case _:
                    assert "5.4" in reader.output("-c", step.text)
    finally:
        reader.stop()

    assert reader.violations() == []


class Reader(Dagster):
    """A reader in the folder of the project, whose name is kate. Dagster runs from `databuild dev` on."""

    def __init__(self, project: Path) -> None:
        self.folder = project
        self.folder.mkdir()
        self.home = project / ".dagster_home"
        self.environment = child_environment() | {"DAGSTER_HOME": str(self.home)}
        self.port = free_port()
        self.log = project.parent / "dev.log"

    def start(self) -> None:
        arguments = [sys.executable, "-m", "databuild_dagster", "dev", "-p", str(self.port)]
        self.process = start_server(arguments, folder=self.folder, environment=self.environment, log=self.log)

    def stop(self) -> None:
        if "process" in vars(self):
            super().stop()
        else:
            kill_processes_of(self.home)

    def type(self, command: str) -> str:
        """What a command of the page prints; the reader waits for the orchestrator as the page says."""
        program, *arguments = shlex.split(command)
        if program == "pip":
            return ""
        if command == "databuild dev":
            self.start()
            self.wait_until_live(MONTHS[1])
            return ""
        if command == "databuild spark --stop":
            # Ctrl-C in the second terminal.
            os.killpg(self.process.pid, signal.SIGINT)
            self.wait_for_end()
        if "TIME" in arguments:
            # The exact moment, for a fast machine taints within the second of the build.
            arguments[arguments.index("TIME")] = str(self.seq_before_the_taint())
        printed = self.output(*(["-m", "databuild_dagster"] if program == "databuild" else []), *arguments)
        if arguments[0] == "resume":
            for month in MONTHS:
                self.wait_until_live(month)
        return printed

    def output(self, *arguments: str) -> str:
        done = run_python(self.folder, *arguments, seconds=MAX_SECONDS, more={"LOGNAME": "kate"})
        return f"{done.stdout}{done.stderr}"

    def seq_before_the_taint(self) -> int:
        lines = self.output("-m", "databuild_dagster", "log", "events").splitlines()
        (seq,) = (event["seq"] for event in map(json.loads, lines) if event["type"] == "TaintCreated")
        return int(seq) - 1
