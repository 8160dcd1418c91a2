"""Names of users and processes in the log. A process on the same machine can see at once that a named process has ended.

A process's name holds the machine's boot, its process namespace, the process id and its start; process ids are reused.
On another machine, or where the system does not name the boot, the lease decides.
"""

from __future__ import annotations

import getpass
import os
import socket
from functools import lru_cache

from databuild_dagster.store.processes import PROCESSES

#: The beginning of a user's name; the rest is missing where the system has no name.
USER = "user"


def this_user() -> str:
    """user:NAME, or only user: the process of a container may run as a user without a name."""
    try:
        name = getpass.getuser()
    except (OSError, KeyError, ImportError):  # The last two before Python 3.13.
        return USER
    # Bytes that are no text come as half characters, which no database takes.
    return f"{USER}:{name.encode('utf-8', 'replace').decode()}"


def this_process() -> str:
    """The name of the calling process: host/boot/namespace/pid/start."""
    return _name_of_own(os.getpid())


@lru_cache(maxsize=1)
def _name_of_own(pid: int) -> str:
    """Cached, because every claim needs it."""
    return "/".join((*_machine(), str(pid), PROCESSES.start_of(pid) or "-"))


def in_words(holder: str) -> str:
    """Such as: process 4711 on host-1."""
    parts = holder.split("/")
    return f"process {parts[3]} on {parts[0]}" if len(parts) == 5 else holder


def surely_gone(holder: str) -> bool:
    """True only if the named process ran on this machine and has ended."""
    parts = holder.split("/")
    if len(parts) != 5 or tuple(parts[:3]) != _machine() or "-" in parts[1:3] or not parts[3].isdigit():
        return False
    start = PROCESSES.start_of(int(parts[3]))
    return start is None or (parts[4] != "-" and start != parts[4])


def this_machine() -> tuple[str, str]:
    """The machine's name and its boot, which stay until a restart."""
    return _machine()[:2]


@lru_cache
def _machine() -> tuple[str, str, str]:
    boot, namespace = PROCESSES.boot() or ("-", "-")
    return socket.gethostname(), boot, namespace
