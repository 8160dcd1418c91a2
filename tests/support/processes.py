"""The processes of a Dagster home: found by their environment, whichever session or parent they have, and ended."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

#: Within that time the kernel removes a process that was killed, on a busy machine too.
KILL_SECONDS = 60

#: Runs a command that gets a signal when its parent dies: a test run that is killed leaves no server behind. Ctrl-C is
#: heeded although a shell starts what runs in its background with that ignored, and children inherit it.
_WITH_PARENT = """
import ctypes, os, signal, sys
parent, number = int(sys.argv[1]), int(sys.argv[2])
signal.signal(signal.SIGINT, signal.SIG_DFL)
ctypes.CDLL(None, use_errno=True).prctl(1, number)
if os.getppid() != parent:
    sys.exit("The parent died before its server began.")
os.execvp(sys.argv[3], sys.argv[3:])
"""


def with_parent(command: Sequence[str], number: signal.Signals = signal.SIGINT) -> list[str]:
    """The command of a process that gets the signal when the thread that starts it ends."""
    return [sys.executable, "-S", "-c", _WITH_PARENT, str(os.getpid()), str(int(number)), *command]


def start_server(
    command: Sequence[str], *, folder: Path, environment: Mapping[str, str], log: Path
) -> subprocess.Popen[bytes]:
    """A process in a session of its own, interrupted when this process dies; its output goes to the end of `log`."""
    with log.open("ab") as out:
        return subprocess.Popen(
            with_parent(command),
            cwd=folder,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )


def processes_of(home: Path, *words: str) -> list[int]:
    """The processes with this DAGSTER_HOME and all of `words` as arguments; zombies and this process are left out."""
    mark = f"DAGSTER_HOME={home}".encode()
    found = []
    for pid in map(int, filter(str.isdigit, os.listdir("/proc"))):
        with suppress(OSError):
            if pid != os.getpid() and mark in Path(f"/proc/{pid}/environ").read_bytes().split(b"\0"):
                arguments = Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="replace").split("\0")
                if set(words) <= set(arguments):
                    found.append(pid)
    return found


def kill_processes_of(home: Path) -> None:
    """End every process of the home and wait until none is left; a process may start another one meanwhile."""
    deadline = time.monotonic() + KILL_SECONDS
    pause = threading.Event()
    while left := processes_of(home):
        assert time.monotonic() < deadline, f"processes of {home} survived {KILL_SECONDS} s of SIGKILL: {left}"
        for pid in left:
            kill(pid)
        pause.wait(0.05)


def kill(pid: int) -> None:
    """SIGKILL, unless the process has ended already."""
    with suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)
