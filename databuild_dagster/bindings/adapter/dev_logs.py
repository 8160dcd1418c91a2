"""The log lines of `databuild dev`: what happened, and not that nothing did; colors on a terminal alone.

`python -m databuild_dagster.bindings.adapter.dev_logs` is Dagster's daemon with these lines.
"""

import logging
import os
import sys
from importlib import import_module
from typing import Any, Final

#: The logger of Dagster's daemon that runs sensors.
_SENSORS: Final = "dagster.daemon.SensorDaemon"
_BEGINS: Final = "Checking for new runs for sensor"
_SKIPPED: Final = " skipped: "
#: The reasons of sensors that have nothing to do: of this package, and Dagster's own for any other sensor.
_NOTHING: Final = ("Nothing is due.", "No operation waits for an executor.", "Sensor function returned an empty result")


class News(logging.Filter):
    """Leaves out the beginnings of ticks, ticks in which nothing happened, and a reason that a sensor has just given."""

    def __init__(self) -> None:
        super().__init__()
        self._last: dict[str, str] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        text = record.getMessage()
        sensor, is_skipped, reason = text.partition(_SKIPPED)
        if not is_skipped:
            return not text.startswith(_BEGINS)
        is_new = self._last.get(sensor) != reason
        self._last[sensor] = reason
        return is_new and reason not in _NOTHING


class _Plain(logging.Formatter):
    """Takes the styles of the formatter that it replaces."""

    def __init__(self, fmt: str, datefmt: str, **styles: Any) -> None:
        super().__init__(fmt, datefmt)


def leave_out_colors() -> None:
    """Let Dagster write its lines without colors, unless a terminal reads them and takes colors (https://no-color.org)."""
    is_plain = bool(os.environ.get("NO_COLOR")) or os.environ.get("TERM") == "dumb"
    if is_plain or not sys.stdout.isatty():
        setattr(import_module("coloredlogs"), "ColoredFormatter", _Plain)  # noqa: B010


def run_daemon() -> None:
    """Run Dagster's daemon; leaves the process at its end."""
    from dagster._daemon.cli import main

    leave_out_colors()
    logging.getLogger(_SENSORS).addFilter(News())
    main()


if __name__ == "__main__":
    run_daemon()
