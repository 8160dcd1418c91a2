"""How the process of a command ends."""

from __future__ import annotations

import threading

import pytest

from databuild_dagster.cli.process import Alarm


def test_an_alarm_interrupts_the_main_thread_and_names_the_time_out(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(KeyboardInterrupt), Alarm(0.01):
        threading.Event().wait(30)

    assert capsys.readouterr().err == "The --timeout of 0.01 s has passed.\n"
