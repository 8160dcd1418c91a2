"""How a build in this process is interrupted: by Ctrl-C, or by its time-out."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

#: What an interrupted build does at its end takes less.
AGAIN_SECONDS: Final = 30.0


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
    """Interrupts the main thread, as Ctrl-C does, so that what runs there ends in the same way, and names the time-out.

    A process that ignores Ctrl-C, such as `databuild build --timeout 1h &` in a script, heeds the time-out all the same. An interrupt
    that meets a callback of the interpreter, such as the garbage collector's, is lost there, so the alarm rings again.
    """

    def __init__(
        self, seconds: float | None, ringing: Callable[[float], None], *, again_seconds: float = AGAIN_SECONDS
    ) -> None:
        self._seconds = seconds
        self.has_rung = False
        self._off = threading.Event()
        self._was_ignored = False
        self._ringing = ringing
        self._again_seconds = again_seconds
        self._lock = threading.Lock()
        self._timer = None if seconds is None else threading.Timer(seconds, self._ring)

    def __enter__(self) -> Alarm:
        if self._timer is not None:
            if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
                self._was_ignored = True
                signal.signal(signal.SIGINT, self._interrupt)
            self._timer.daemon = True
            self._timer.start()
        return self

    def __exit__(self, *raised: object) -> None:
        # First, and without the lock: an interrupt may come while this waits for a ring, and would leave the alarm on.
        self._off.set()
        if self._timer is not None:
            self._timer.cancel()
        with self._lock:
            pass
        if self._was_ignored:
            signal.signal(signal.SIGINT, signal.SIG_IGN)

    def _interrupt(self, *_: object) -> None:
        if self.has_rung:
            raise KeyboardInterrupt

    def _ring(self) -> None:
        assert self._seconds is not None
        while True:
            # Under the lock: after the end of the block no signal comes.
            with self._lock:
                if self._off.is_set():
                    return
                is_first, self.has_rung = not self.has_rung, True
                signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)
                if is_first:
                    self._ringing(self._seconds)
            if self._off.wait(self._again_seconds):
                return
