"""Ctrl-C, or Dagster ending a run, raises in the middle of the main thread's work; the state stays usable.

Unlike kill -9, it leaves a process that goes on: with the same connection, and with other threads that wait for the lock.
"""

from __future__ import annotations

import linecache
import sys
from collections.abc import Callable
from pathlib import Path
from threading import Thread
from types import FrameType
from typing import Any

import pytest

from databuild_dagster import store
from databuild_dagster.model.states import WantState
from tests.support.catalog import dataset

#: Where transactions begin and end.
TRANSACTIONS = {
    str(Path(store.__file__).parent / name) for name in ("store.py", "backends/sqlite.py", "backends/postgres.py")
}
#: Between these and the line before there is no call, so no moment at which Python looks for signals.
NO_MOMENT = ("try:", "finally:", "else:")


class Interrupted(BaseException):
    """As KeyboardInterrupt, which pytest takes for the end of the tests."""


def interrupted_at(moment: int, call: Callable[[], object]) -> bool:
    """Whether the call lasted until that line of the store's transactions, and was interrupted there."""
    left = moment

    def trace(frame: FrameType, event: str, _arg: Any) -> Any:
        nonlocal left
        path = frame.f_code.co_filename
        if path not in TRANSACTIONS:
            return None
        if event == "line" and linecache.getline(path, frame.f_lineno).strip() not in NO_MOMENT:
            if left == 0:
                sys.settrace(None)
                left = -1
                raise Interrupted
            left -= 1
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        call()
    except Interrupted:
        return True
    finally:
        sys.settrace(before)
    return False


def in_another_thread(call: Callable[[], object]) -> None:
    """It waits for no lock that this thread has kept."""
    thread = Thread(target=call, daemon=True)
    thread.start()
    thread.join(timeout=250)
    assert not thread.is_alive(), "the lock was not let go of"


@pytest.fixture
def world(make_world, shared_url):
    return make_world(*(dataset(name) for name in "abc"), url=shared_url)


def test_a_command_interrupted_at_any_line_happened_or_did_not_and_everybody_goes_on(world):
    """Rule 3.3; it leaves no transaction open, and no lock that others wait for."""
    moment = 0
    while interrupted_at(moment, lambda: world.want("a")):
        in_another_thread(lambda: world.want("b"))
        world.want("c")
        moment += 1
    assert moment > 20
    assert not world.check()


def test_a_look_interrupted_at_any_line_is_over(world):
    """Else this thread would go on seeing what was there when it was interrupted."""

    def look() -> None:
        with world.store.reading() as connection:
            connection.execute("SELECT 1").fetchall()

    moment = 0
    while interrupted_at(moment, look):
        wants: list[str] = []
        in_another_thread(lambda wanted=wants: wanted.append(world.want("b")))
        (want,) = wants
        assert world.want_state(want) is WantState.IDLE
        moment += 1
    assert moment > 5
