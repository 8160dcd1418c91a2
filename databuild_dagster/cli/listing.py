"""Options of commands that list what happened, and the lines of a record."""

from collections.abc import Callable, Mapping
from enum import Enum
from typing import Any

import click

from databuild_dagster.cli.options import PAST, F, StateWord

SINCE = click.option(
    "--since", type=PAST, metavar="TIME|DURATION", help="Only from this time on: 2026-11-21T14:00:00Z, or 7d ago."
)


def in_states(states: type[Enum], of: str) -> Callable[[F], F]:
    """--state of a list, passed on as `states`: members of the enumeration."""
    return click.option(
        "--state",
        "states",
        type=StateWord([state.value for state in states]),
        callback=lambda _context, _option, given: tuple(map(states, given)),
        multiple=True,
        metavar="STATE",
        help=f"Only {of} in this state, open or ended; may be repeated.",
    )


def details(lines: Mapping[str, Any]) -> None:
    """Print a line for each value that is not None, after its name."""
    width = max(map(len, lines))
    for name, value in lines.items():
        if value is not None:
            click.echo(f"{click.style(name.ljust(width), bold=True)}  {value}")
