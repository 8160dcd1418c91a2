"""A test run that is killed leaves no server behind."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest

from tests.support.guard import processes_in

ROOT = Path(__file__).parents[1]
MAX_SECONDS = 60.0

#: Starts something in a folder, prints the folder, and waits to be killed.
POSTGRES = """
from tests.support.postgres import PostgresServer
print(PostgresServer().folder, flush=True)
input()
"""
A_FOLDER = """
import subprocess, sys
from tests.support.guard import guard
guard(sys.argv[1])
waits = "import threading; threading.Event().wait(600)"
subprocess.Popen([sys.executable, "-S", "-c", waits], cwd=sys.argv[1], start_new_session=True)
print(sys.argv[1], flush=True)
input()
"""


def start(script: str, *arguments: str) -> tuple[subprocess.Popen[str], Path]:
    """(a process that has started its servers, the folder where they work)"""
    process = subprocess.Popen(
        [sys.executable, "-c", script, *arguments], cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    return process, Path(process.stdout.readline().strip())


def wait_until(happened: Callable[[], bool], what: str) -> None:
    deadline, pause = time.monotonic() + MAX_SECONDS, threading.Event()
    while not happened():
        assert time.monotonic() < deadline, f"waited {MAX_SECONDS:.0f} s until {what}"
        pause.wait(0.1)


@pytest.mark.long("PostgreSQL is a server")
def test_a_postgresql_server_ends_with_the_process_that_started_it() -> None:
    process, folder = start(POSTGRES)
    assert len(processes_in(folder)) > 1

    process.kill()
    process.wait(MAX_SECONDS)

    wait_until(lambda: not folder.exists(), f"the server in {folder} is gone")
    assert processes_in(folder) == []


def test_a_process_in_a_guarded_folder_ends_with_the_process_that_guards_it(tmp_path: Path) -> None:
    process, folder = start(A_FOLDER, str(tmp_path))
    assert len(processes_in(folder)) == 1

    process.kill()
    process.wait(MAX_SECONDS)

    wait_until(lambda: processes_in(folder) == [], f"no process is left in {folder}")


def test_this_run_guards_the_folder_of_its_tests(tmp_path_factory: pytest.TempPathFactory) -> None:
    base = tmp_path_factory.getbasetemp()
    guarded = set()
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            arguments = (process / "cmdline").read_bytes().decode(errors="replace").split("\0")
            if any(argument.endswith("tests/support/guard.py") for argument in arguments):
                guarded |= set(arguments)

    assert {str(base), str(base.parent)} & guarded
