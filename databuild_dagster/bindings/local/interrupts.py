"""How a build in this process is interrupted: by Ctrl-C, or by its time-out."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager


class Stopped(Exception):
    """`__cause__` ended a command that had begun its work, which is a failure and no refusal."""


def heed_no_more_interrupts() -> None:
    """One Ctrl-C is enough: those that follow would cut short how the process takes its leave."""
    if threading.current_thread() is threading.main_thread():
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, signal.SIG_IGN)


@contextmanager
def interrupts_restored() -> Iterator[None]:
    """Ctrl-C and SIGTERM do after the block what they did before it."""
    handlers = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        if threading.current_thread() is threading.main_thread():
            for number, handler in handlers.items():
                signal.signal(number, handler)


class Alarm:
    """Interrupts the main thread once, as Ctrl-C does, so that what runs there ends in the same way, and names the time-out."""

    def __init__(self, seconds: float | None, ringing: Callable[[float], None]) -> None:
        self._seconds = seconds
        self.has_rung = False
        self._is_off = False
        self._ringing = ringing
        self._lock = threading.Lock()
        self._timer = None if seconds is None else threading.Timer(seconds, self._ring)

    def __enter__(self) -> Alarm:
        if self._timer is not None:
            self._timer.daemon = True
            self._timer.start()
        return self

    def __exit__(self, *raised: object) -> None:
        if self._timer is not None:
            self._timer.cancel()
        with self._lock:
            self._is_off = True

    def _ring(self) -> None:
        # Under the lock: after the end of the block no signal comes.
        with self._lock:
            if not self._is_off and self._seconds is not None:
                self.has_rung = True
                signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)
                self._ringing(self._seconds)
