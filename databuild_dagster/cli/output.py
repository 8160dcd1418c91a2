"""Values for people and for programs: a table or a sentence on the one hand, JSON on the other."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import Any

import click

from databuild_dagster.engine import wording
from databuild_dagster.model.wording import few_of

#: The colour of a state, the same wherever it is shown.
STYLES = {
    "Live": "green",
    "Successful": "green",
    "Succeeded": "green",
    "Building": "cyan",
    "Running": "cyan",
    "Queued": "cyan",
    "UpstreamBuilding": "blue",
    "UpForRetry": "yellow",
    "Tainted": "magenta",
    "DepMissed": "yellow",
    "Failed": "red",
    "UpstreamFailed": "red",
    "Lost": "red",
}


def emit(value: Any) -> None:
    """One JSON value on stdout."""
    click.echo(json.dumps(value, default=str))


def table(columns: Sequence[str], rows: Iterable[Sequence[Any]], *, empty: str) -> None:
    """A table as wide as it has to be; states have their colours on a terminal."""
    listed = [["-" if cell is None else str(cell) for cell in row] for row in rows]
    if not listed:
        click.echo(empty)
        return
    widths = [max(len(row[i]) for row in [list(columns), *listed]) for i in range(len(columns))]
    click.echo(
        "  ".join(
            click.style(name.ljust(width), bold=True) for name, width in zip(columns, widths, strict=True)
        ).rstrip()
    )
    for row in listed:
        cells = [click.style(cell.ljust(width), fg=STYLES.get(cell)) for cell, width in zip(row, widths, strict=True)]
        click.echo("  ".join(cells).rstrip())


def when(at: float | None) -> str | None:
    """A time as people and programs read it: ISO 8601, UTC, to the second."""
    return None if at is None else wording.when(at)


def exactly(at: float) -> str:
    """A time to the microsecond."""
    return wording.exactly(at)


def shown(refs: Sequence[str], most: int = 3) -> str:
    """A few refs, and how many more."""
    return few_of(refs, most)


def count(n: int, noun: str, plural: str | None = None) -> str:
    return f"{n} {noun}" if n == 1 else f"{n} {plural or noun + 's'}"
