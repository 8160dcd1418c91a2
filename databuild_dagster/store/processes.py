"""The processes of this machine, as the operating system knows them: start, user, command, and whether a process is suspended.

| on        | by      | a process's start is                                        |
|-----------|---------|-------------------------------------------------------------|
| Linux     | `/proc` | clock ticks since boot, which no change of the clock moves  |
| elsewhere | psutil  | psutil's identity of the process, which no change moves     |

A process that only waits to be reaped has ended. A reading of a process that this process may not see is None or False.
"""

import os
import sys
from contextlib import suppress
from pathlib import Path
from typing import Protocol

#: Bound of the only program that is run, once in a process.
BOOT_SECONDS = 5.0
#: Prints the id of the boot on macOS. Other systems have no such name, and the program fails.
BOOT_COMMAND = ("sysctl", "-n", "kern.bootsessionuuid")
#: In place of a process namespace, where the system has none.
ONE_NAMESPACE = "0"
_MASK = 0xFFFF_FFFF_FFFF_FFFF


class Processes(Protocol):
    """A way to read processes."""

    def boot(self) -> tuple[str, str] | None:
        """The id of the machine's boot and of this process's namespace; None if the system does not show both."""

    def start_of(self, pid: int) -> str | None:
        """The start of a process, the same text for every reader until the process ends; None if it has ended."""

    def user_of(self, pid: int) -> int | None:
        """The id of the user as whom a process runs."""

    def command_of(self, pid: int) -> str | None:
        """The command line of a process, with a blank between its words."""

    def is_suspended(self, pid: int) -> bool:
        """Whether a process is stopped, by Ctrl-Z or a debugger, until it continues."""


class ProcFiles:
    """Reads the files of Linux's kernel."""

    def boot(self) -> tuple[str, str] | None:
        try:
            boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
            return boot, os.readlink("/proc/self/ns/pid").strip("pid:[]")
        except OSError:
            return None

    def start_of(self, pid: int) -> str | None:
        fields = self._fields(pid)
        return fields[19] if fields and fields[0] not in ("Z", "X") else None

    def user_of(self, pid: int) -> int | None:
        with suppress(OSError):
            return os.stat(f"/proc/{pid}").st_uid
        return None

    def command_of(self, pid: int) -> str | None:
        with suppress(OSError):
            return Path(f"/proc/{pid}/cmdline").read_text(errors="replace").replace("\0", " ").strip()
        return None

    def is_suspended(self, pid: int) -> bool:
        fields = self._fields(pid)
        return bool(fields) and fields[0] in ("T", "t")

    def _fields(self, pid: int) -> list[str]:
        """The fields of a process's status from its state on; none if it has ended."""
        with suppress(OSError):
            # The name of the program is in brackets, and may have brackets of its own.
            return Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2].split()
        return []


class Psutil:
    """Asks psutil, which knows the calls of each system."""

    def __init__(self, boot_command: tuple[str, ...] = BOOT_COMMAND) -> None:
        self._boot_command = boot_command

    def boot(self) -> tuple[str, str] | None:
        # psutil's time of the boot moves with the clock, and is no name: two machines may have the same.
        import subprocess  # No command has to load it for a system that is Linux.

        with suppress(OSError, subprocess.SubprocessError):
            answer = subprocess.run(
                self._boot_command, capture_output=True, text=True, check=True, timeout=BOOT_SECONDS
            )
            if boot := answer.stdout.strip():
                return boot, ONE_NAMESPACE
        return None

    def start_of(self, pid: int) -> str | None:
        import psutil  # type: ignore[import-untyped]

        try:
            process = psutil.Process(pid)
            if process.status() in (psutil.STATUS_ZOMBIE, psutil.STATUS_DEAD):
                return None
        except psutil.NoSuchProcess:
            return None
        except psutil.AccessDenied:
            pass
        # Not `create_time()`: it is corrected when the clock was set since its reader imported psutil, so two readers may
        # differ. The hash is of the process id and the time that the kernel keeps.
        return f"{hash(process) & _MASK:x}"

    def user_of(self, pid: int) -> int | None:
        import psutil

        with suppress(psutil.Error):
            return int(psutil.Process(pid).uids().effective)
        return None

    def command_of(self, pid: int) -> str | None:
        import psutil

        with suppress(psutil.Error):
            return " ".join(psutil.Process(pid).cmdline()).strip()
        return None

    def is_suspended(self, pid: int) -> bool:
        import psutil

        with suppress(psutil.Error):
            return psutil.Process(pid).status() in (psutil.STATUS_STOPPED, psutil.STATUS_TRACING_STOP)
        return False


#: The processes of this machine.
PROCESSES: Processes = ProcFiles() if sys.platform == "linux" else Psutil()
