"""Linux's files and psutil give the same readings of every process that a test starts, suspends and kills (rule 6.9)."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from databuild_dagster.store.processes import Processes, ProcFiles, Psutil

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the files are Linux's")

DATABASES = ()

FILES, PSUTIL = ProcFiles(), Psutil()
BOTH = pytest.mark.parametrize("processes", [FILES, PSUTIL], ids=["files", "psutil"])

SLEEP = "import time; print('begun', flush=True); time.sleep(600)"
#: Each act, and the change of the process's state after which it is done.
ACTS = {"suspend": (signal.SIGSTOP, os.WSTOPPED), "continue": (signal.SIGCONT, os.WCONTINUED)}
#: Letters of the name of a program and of its arguments; brackets end the name in Linux's file.
NAMES = st.text("ab ()Z7\N{GREEK SMALL LETTER ALPHA}\N{PILE OF POO}", min_size=1, max_size=6).filter(str.strip)


@contextmanager
def a_program(folder: Path, name: str, *arguments: str) -> Iterator[subprocess.Popen[bytes]]:
    """A process that sleeps, of a program with that name."""
    program = folder / name
    program.symlink_to(sys.executable)
    command = [str(program), "-ISc", SLEEP, *arguments]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
        try:
            # The kernel shows the command a moment after the program was started.
            assert process.stdout is not None
            assert process.stdout.readline() == b"begun\n"
            yield process
        finally:
            process.kill()
            program.unlink()


def act(process: subprocess.Popen[bytes], name: str) -> None:
    sign, change = ACTS[name]
    process.send_signal(sign)
    os.waitid(os.P_PID, process.pid, change)


def readings(processes: Processes, pid: int) -> tuple[bool, int | None, str | None, bool]:
    """What both have to say alike: alive, user, command, suspended."""
    alive = processes.start_of(pid) is not None
    return alive, processes.user_of(pid), processes.command_of(pid), processes.is_suspended(pid)


@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(name=NAMES, arguments=st.lists(NAMES, max_size=2), acts=st.lists(st.booleans(), max_size=3))
def test_both_agree_on_a_process_until_it_is_killed(
    tmp_path: Path, name: str, arguments: list[str], acts: list[bool]
) -> None:
    with a_program(tmp_path, name, *arguments) as process:
        is_suspended = False
        for suspend in acts:
            if suspend != is_suspended:
                act(process, "suspend" if suspend else "continue")
            is_suspended = suspend

            alive, user, command, suspended = readings(FILES, process.pid)

            assert readings(PSUTIL, process.pid) == (alive, user, command, suspended)
            assert (alive, user, suspended) == (True, os.geteuid(), is_suspended)
            assert command is not None
            assert command.startswith(str(tmp_path / name))
            assert command.endswith(" ".join([SLEEP, *arguments]).strip())

        process.kill()
        os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
        assert FILES.start_of(process.pid) is PSUTIL.start_of(process.pid) is None, "it waits to be reaped"
        process.wait()
        assert readings(FILES, process.pid) == readings(PSUTIL, process.pid) == (False, None, None, False)


@BOTH
def test_every_reader_sees_the_same_start_and_another_process_has_another(tmp_path: Path, processes: Processes) -> None:
    code = (
        "import sys; from databuild_dagster.store.processes import ProcFiles, Psutil;"
        "print(getattr(sys.modules['databuild_dagster.store.processes'], sys.argv[1])().start_of(int(sys.argv[2])))"
    )

    with a_program(tmp_path, "sleeper") as process:
        start = processes.start_of(process.pid)
        reader = [sys.executable, "-c", code, type(processes).__name__, str(process.pid)]
        read = subprocess.run(reader, capture_output=True, text=True, check=True, timeout=240).stdout.strip()

        act(process, "suspend")
        assert processes.start_of(process.pid) == start == read
        assert start not in (None, "", "-", processes.start_of(os.getpid()))
        assert "/" not in str(start)


@BOTH
@pytest.mark.parametrize("pid", [2**22 + 1, 10**30])
def test_a_process_id_that_no_process_has_is_of_an_ended_one(processes: Processes, pid: int) -> None:
    assert readings(processes, pid) == (False, None, None, False)


def test_a_system_without_a_name_of_the_boot_gives_none() -> None:
    """The command is macOS's, and no such name exists on Linux."""
    assert PSUTIL.boot() is None
    assert Psutil(("false",)).boot() is None
    assert Psutil(("true",)).boot() is None
    assert Psutil(("echo", "a boot")).boot() == ("a boot", "0")
