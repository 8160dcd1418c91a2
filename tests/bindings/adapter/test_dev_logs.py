"""The lines of `databuild dev`: what happened, and not that nothing did (rules 15)."""

import io
import logging

import coloredlogs
import pytest
from coloredlogs import ColoredFormatter
from dagster._utils.log import configure_loggers

from databuild_dagster.bindings.adapter.dev_logs import News, leave_out_colors


@pytest.fixture
def shown(caplog: pytest.LogCaptureFixture) -> list[str]:
    """What is shown of a quiet minute, a launch and another quiet minute."""
    log = logging.Logger("sensors")
    log.addFilter(News())
    log.addHandler(caplog.handler)
    for reason in ["Nothing is due.", "Two versions.", "Two versions.", "Nothing is due.", "Two versions."]:
        log.info("Checking for new runs for sensor: databuild_orchestrator")
        log.info(f"Sensor databuild_orchestrator skipped: {reason}")
        log.info(f"Sensor mine skipped: {reason}")
    log.info("Launching run for databuild_orchestrator")
    return caplog.messages


def test_a_tick_is_shown_if_something_happened_or_its_reason_is_new(shown: list[str]) -> None:
    news = ["Sensor databuild_orchestrator skipped: Two versions.", "Sensor mine skipped: Two versions."]

    assert shown == [*news, *news, "Launching run for databuild_orchestrator"]


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(
    ("stream", "variables", "has_colors"),
    [
        (Terminal, {"TERM": "xterm", "NO_COLOR": ""}, True),
        (Terminal, {"TERM": "dumb", "NO_COLOR": ""}, False),
        (Terminal, {"TERM": "xterm", "NO_COLOR": "1"}, False),
        (io.StringIO, {"TERM": "xterm", "NO_COLOR": ""}, False),
    ],
)
def test_lines_have_colors_on_a_terminal_that_takes_them(monkeypatch, stream, variables, has_colors) -> None:
    # A test of the web server, which runs in this process, may have replaced it.
    monkeypatch.setattr(coloredlogs, "ColoredFormatter", ColoredFormatter)
    monkeypatch.setattr("sys.stdout", printed := stream())
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    log = logging.getLogger("dagster")
    monkeypatch.setattr(log, "handlers", [])

    leave_out_colors()
    configure_loggers()
    log.info("Launching Dagster services...")

    assert "Launching" in printed.getvalue()
    assert ("\x1b[" in printed.getvalue()) is has_colors
