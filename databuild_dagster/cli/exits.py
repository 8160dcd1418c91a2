"""Exit codes of the command line, and how a command leaves with one."""

from __future__ import annotations

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
