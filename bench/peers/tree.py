"""Processor seconds of all processes that a command has started, ended or not: its children, their daemons, and the daemons' children."""

import ctypes
import os
import resource
from contextlib import suppress
from pathlib import Path

from bench.earlier import processor_below

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
