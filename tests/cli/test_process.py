"""How the process of a command ends."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator

import pytest

from databuild_dagster.cli.process import heed_interrupts


@pytest.fixture
def kept_handlers() -> Iterator[None]:
    handlers = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    yield
    for number, handler in handlers.items():
        signal.signal(number, handler)


def test_sigterm_interrupts_as_ctrl_c_does_also_in_the_background_of_a_shell(kept_handlers: None) -> None:
    """A shell lets such a command ignore Ctrl-C."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)

    heed_interrupts()

    for number in (signal.SIGTERM, signal.SIGINT):
        with pytest.raises(KeyboardInterrupt):
            os.kill(os.getpid(), number)
            threading.Event().wait(30)
