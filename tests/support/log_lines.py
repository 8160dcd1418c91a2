"""The moment of a log line: a test acts in it, in the thread that logs."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager


class _Acting(logging.Handler):
    def __init__(self, act: Callable[[str], object]) -> None:
        super().__init__(logging.WARNING)
        self._act = act

    def emit(self, record: logging.LogRecord) -> None:
        self._act(record.getMessage())


@contextmanager
def at_warnings(module: str, act: Callable[[str], object]) -> Iterator[None]:
    """Call `act` with each warning of a module; its errors come out of the module's call."""
    log, handler = logging.getLogger(module), _Acting(act)
    log.addHandler(handler)
    try:
        yield
    finally:
        log.removeHandler(handler)
