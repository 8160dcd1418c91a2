"""Differences as tables of a terminal, or of a pull request."""

from collections.abc import Iterable, Sequence
from typing import Any

import click

from databuild_dagster.cli.options import F
from databuild_dagster.cli.output import table
from databuild_dagster.features.compare.ranges import PartitionDifference

#: Of a partition in a table: the heading, and the field.
_COLUMNS = (
    ("before", "rows_a"),
    ("after", "rows_b"),
    ("added", "added"),
    ("removed", "removed"),
    ("changed", "changed"),
)


def key_and_markdown(function: F) -> F:
    """--key, passed on as the names of columns, and --markdown."""
    function = click.option("--markdown", is_flag=True, help="Print a table for a pull request.")(function)
    return click.option(
        "--key",
        default="",
        metavar="COLUMN[,COLUMN]",
        callback=lambda context, option, text: tuple(filter(None, text.split(","))),
        help="The columns that name a row, to compare row by row.",
    )(function)


def print_partitions(partitions: Iterable[PartitionDifference], *, markdown: bool) -> None:
    """Print a line for each."""
    rows = [
        (of.ref, of.outcome, *(getattr(of, field) for _, field in _COLUMNS), _what_changed(of)) for of in partitions
    ]
    print_table(("partition", "outcome", *(heading for heading, _ in _COLUMNS), "columns"), rows, markdown=markdown)


def print_table(headings: Sequence[str], rows: Sequence[Sequence[Any]], *, markdown: bool) -> None:
    """Print nothing without rows."""
    if not rows:
        return
    if not markdown:
        table(headings, rows, empty="")
        return
    click.echo("")
    for row in (headings, ("---",) * len(headings), *rows):
        cells = ("" if cell is None else str(cell).replace("|", "\\|") for cell in row)
        click.echo(f"| {' | '.join(cells)} |")


def _what_changed(found: PartitionDifference) -> str:
    said = [f"{column.name} {column.change}" for column in found.columns]
    said += [value.name if value.rows is None else f"{value.name} in {value.rows:,}" for value in found.values]
    return ", ".join([*said, *([found.note] if found.note else [])])
