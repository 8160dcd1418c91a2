"""Exit codes of the command line, and how a command leaves with one."""

from __future__ import annotations

import signal
import threading

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
