"""Names in the log: of users and processes, and new ids. A process sees at once that a process of the same machine has ended.

A process's name holds the machine's boot, its process namespace, the process id and its start; process ids are reused.
On a different machine, or where the system does not name the boot, the lease decides. Ids are UUIDv7, which sort by time, so that
the database's indexes grow at their end.
"""

import getpass
import os
import random
import socket
import time
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


#: Seeded by the system once, because asking it for each id doubles the time; and again after a fork, because the child
#: would make its parent's ids. `random.seed` does not affect it.
_chance = random.Random()
os.register_at_fork(after_in_child=_chance.seed)


#: The bits of a UUIDv7 below its time: its version and its variant, and its random bits.
_MARKS, _FREE = 0x7000_8000_0000_0000_0000, 0x0FFF_3FFF_FFFF_FFFF_FFFF


def new_id() -> str:
    """A 36-character UUIDv7 string (RFC 9562): 48 bits of milliseconds, then chance."""
    # Written by hand: the uuid module takes five times as long, and every command makes one to three.
    bits = time.time_ns() // 1_000_000 << 80 | _MARKS | _chance.getrandbits(80) & _FREE
    digits = bits.to_bytes(16, "big").hex()
    return f"{digits[:8]}-{digits[8:12]}-{digits[12:16]}-{digits[16:20]}-{digits[20:]}"
