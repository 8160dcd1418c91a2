"""How a build is interrupted: by its time-out, as by Ctrl-C."""

from __future__ import annotations

import threading
from contextlib import suppress

import pytest

from databuild_dagster.bindings.local.interrupts import Alarm


def test_an_alarm_interrupts_the_main_thread_and_tells_its_seconds() -> None:
    told: list[float] = []

    with pytest.raises(KeyboardInterrupt), Alarm(0.01, told.append):
        threading.Event().wait(30)

    assert told == [0.01]


def test_an_alarm_rings_again_after_an_interrupt_that_was_lost() -> None:
    told: list[float] = []

    with pytest.raises(KeyboardInterrupt), Alarm(0.01, told.append, again_seconds=0.01):
        with suppress(KeyboardInterrupt):
            threading.Event().wait(30)
        threading.Event().wait(30)

    assert told == [0.01]
