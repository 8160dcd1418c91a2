"""Names of processes that another process on the same machine can look up, so that a death there needs no waiting.

A name holds the machine's boot, its process namespace, the process id and the time the process began; ids are used
again, beginnings are not. On another machine, or where /proc is not, nothing can be proven and the lease decides.
"""

from __future__ import annotations

import os
import socket
from functools import lru_cache
from pathlib import Path


def this_process() -> str:
    """The name of the calling process: host/boot/namespace/pid/start."""
    return _name_of_own(os.getpid())


@lru_cache(maxsize=1)
def _name_of_own(pid: int) -> str:
    """Asked for by every claim, and the same as long as it is the same process."""
    return "/".join((*_machine(), str(pid), start_of(pid) or "-"))


def surely_gone(holder: str) -> bool:
    """True only when the named process ran on this machine and does not exist any more."""
    parts = holder.split("/")
    if len(parts) != 5 or tuple(parts[:3]) != _machine() or "-" in parts[1:3] or not parts[3].isdigit():
        return False
    start = start_of(int(parts[3]))
    return start is None or (parts[4] != "-" and start != parts[4])


def this_machine() -> tuple[str, str]:
    """Its name and its boot: the same until it is started anew."""
    return _machine()[:2]


@lru_cache
def _machine() -> tuple[str, str, str]:
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        namespace = os.readlink("/proc/self/ns/pid").strip("pid:[]")
    except OSError:
        return socket.gethostname(), "-", "-"
    return socket.gethostname(), boot, namespace


def start_of(pid: int) -> str | None:
    """The start time of a process in clock ticks since boot; None when it is not there, or only waits to be reaped."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None
    state, start = fields[0], fields[19]
    return None if state in ("Z", "X") else start
