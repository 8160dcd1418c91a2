"""Ends what a test process leaves behind when it dies: by a signal, by pytest-xdist, by a second Ctrl-C.

A server is a daemon or has a session of its own, so it outlives the process that started it. It works in a folder of
the tests, and by that the guard knows it. The guard is a process with nothing but the standard library.
"""

import os
import shutil
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

POLL_SECONDS = 0.5
#: SIGQUIT lets PostgreSQL free its shared memory; what is left then is killed.
QUIT_SECONDS = 5.0
#: Within that time the kernel removes a process that was killed, on a busy machine too.
KILL_SECONDS = 60.0


def guard(folder: str | Path, *, remove: bool = False) -> "subprocess.Popen[bytes]":
    """Start the guard of a folder: when this process has ended, it ends the processes that work there, or `remove`s all."""
    command = [sys.executable, "-S", __file__, str(os.getpid()), str(folder), *(["remove"] if remove else [])]
    return subprocess.Popen(
        command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True
    )


def dismiss(guard: "subprocess.Popen[bytes]") -> None:
    """End a guard, so that it ends nothing."""
    guard.kill()
    guard.wait()


def processes_in(folder: str | Path) -> list[int]:
    """The processes that work in a folder or below it, but for this one."""
    place = os.path.realpath(folder)
    found = []
    for pid in map(int, filter(str.isdigit, os.listdir("/proc"))):
        with suppress(OSError):
            # The folder of a process may be gone.
            works_in = os.readlink(f"/proc/{pid}/cwd").removesuffix(" (deleted)")
            if pid != os.getpid() and Path(works_in).is_relative_to(place):
                found.append(pid)
    return found


def end_processes_in(folder: str | Path) -> list[int]:
    """End them and wait until none is left; returns those that survive `KILL_SECONDS`."""
    began = time.monotonic()
    while (left := processes_in(folder)) and time.monotonic() - began < KILL_SECONDS:
        # A stopped process heeds SIGQUIT after SIGCONT.
        is_early = time.monotonic() - began < QUIT_SECONDS
        for pid in left:
            with suppress(ProcessLookupError):
                for number in (signal.SIGQUIT, signal.SIGCONT) if is_early else (signal.SIGKILL,):
                    os.kill(pid, number)
        time.sleep(0.1)
    return left


def main() -> None:
    parent, folder = int(sys.argv[1]), sys.argv[2]
    while os.getppid() == parent:
        time.sleep(POLL_SECONDS)
    end_processes_in(folder)
    if "remove" in sys.argv[3:]:
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()
