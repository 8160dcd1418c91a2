"""Processor seconds of processes, ended or not: of all below this one with their daemons, and of the Spark servers of a home."""

import ctypes
import json
import os
import resource
from contextlib import suppress
from pathlib import Path

_PR_SET_CHILD_SUBREAPER = 36


def adopt_daemons() -> None:
    """Let Linux make this process the parent of a process below it whose parent ends, as each daemon's does."""
    if ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0):
        raise OSError("prctl: this system cannot follow daemons")


def processor_seconds() -> float:
    """Of all processes below this one since its start, ended or not."""
    with suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    ended = resource.getrusage(resource.RUSAGE_CHILDREN)
    running = [int(child) for path in Path("/proc/self/task").glob("*/children") for child in path.read_text().split()]
    return ended.ru_utime + ended.ru_stime + sum(map(processor_below, running))


def processor_of_children() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def processor_of_servers(home: Path) -> float:
    """Of the Spark servers of a home, and of their Python workers, ended or not."""
    pids = [json.loads(path.read_bytes())["pid"] for path in home.glob("spark/*/server.json")]
    return sum(processor_below(pid) for pid in pids)


def processor_below(pid: int) -> float:
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        children = [
            int(child) for path in Path(f"/proc/{pid}/task").glob("*/children") for child in path.read_text().split()
        ]
    except OSError:
        return 0.0
    own = sum(map(int, fields[11:15])) / os.sysconf("SC_CLK_TCK")
    return own + sum(map(processor_below, children))
