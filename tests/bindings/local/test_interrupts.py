"""How a build is interrupted: by its time-out, as by Ctrl-C."""

from __future__ import annotations

import signal
import threading
from contextlib import suppress

import pytest

from databuild_dagster.bindings.local.interrupts import Alarm

#: An alarm that rings before the main thread is in its block, or while it leaves the block, ends the test run.
SECONDS = 0.5


def test_an_alarm_interrupts_the_main_thread_and_tells_its_seconds() -> None:
    told: list[float] = []

    with pytest.raises(KeyboardInterrupt), Alarm(SECONDS, told.append):
        threading.Event().wait(250)

    assert told == [SECONDS]


def test_an_alarm_rings_again_after_an_interrupt_that_was_lost() -> None:
    told: list[float] = []

    with pytest.raises(KeyboardInterrupt), Alarm(SECONDS, told.append, again_seconds=SECONDS):
        with suppress(KeyboardInterrupt):
            threading.Event().wait(250)
        threading.Event().wait(250)

    assert told == [SECONDS]


class Seen:
    """A lock that tells when the main thread asks for it."""

    def __init__(self) -> None:
        self.asked = threading.Event()
        self._lock = threading.Lock()

    def __enter__(self) -> None:
        if threading.current_thread() is threading.main_thread():
            self.asked.set()
        self._lock.acquire()

    def __exit__(self, *_: object) -> None:
        self._lock.release()


def test_an_alarm_that_rings_as_its_block_ends_is_off_afterwards(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its interrupt comes while the end of the block waits for the ring."""
    alarm, lock = Alarm(0.0, lambda seconds: None), Seen()
    rings, kill = threading.Event(), signal.pthread_kill

    def ring(thread: int, number: int) -> None:
        rings.set()
        assert lock.asked.wait(250)
        kill(thread, number)

    monkeypatch.setattr(alarm, "_lock", lock)
    monkeypatch.setattr(signal, "pthread_kill", ring)

    with pytest.raises(KeyboardInterrupt), alarm:
        assert rings.wait(250)

    is_off = alarm._off.is_set()
    alarm._off.set()
    assert is_off
