"""How the process of a command prints and ends: its exit codes, and its own streams while assets run in it (rules 15)."""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console

#: Something wanted failed, or a check found something.
FAILED = 1
#: Refused, or bad usage.
REFUSED = 2
#: Ctrl-C.
INTERRUPTED = 130


class Exit(Exception):
    """Leave with an exit code, everything that there was to say being said."""

    def __init__(self, code: int) -> None:
        super().__init__(code)
        self.code = code


def heed_no_more_interrupts() -> None:
    """One Ctrl-C is enough: those that follow would cut short how the process takes its leave."""
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGINT, signal.SIG_IGN)


@contextmanager
def printing_to_stderr() -> Iterator[None]:
    """Send to stderr what assets, or Dagster for them, print within: stdout is for the answer.

    By the file descriptor, for Dagster starts processes that print what a step has printed.
    """
    try:
        out, err = sys.stdout.fileno(), sys.stderr.fileno()
    except OSError:
        # A caller replaced the streams, and reads the replacement.
        yield
        return
    sys.stdout.flush()
    kept = os.dup(out)
    os.dup2(err, out)
    try:
        yield
    finally:
        sys.stdout.flush()
        os.dup2(kept, out)
        os.close(kept)


@contextmanager
def own_terminal() -> Iterator[Console]:
    """The terminal on stderr, by a descriptor of our own: while a step runs, Dagster has the usual one go to a file."""
    from rich.console import Console

    try:
        own = os.dup(sys.stderr.fileno())
    except OSError:
        yield Console(stderr=True)
        return
    with os.fdopen(own, "w", encoding=sys.stderr.encoding, errors="replace") as terminal:
        yield Console(file=terminal)
