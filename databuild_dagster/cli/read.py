"""`databuild read REF`: the rows of what readers see, without Spark."""

from __future__ import annotations

import datetime
import decimal
from typing import Any

import click

from databuild_dagster.bindings.readable import readable_ref
from databuild_dagster.cli.options import as_of, common, moment
from databuild_dagster.cli.output import emit, table
from databuild_dagster.cli.state import the_engine, the_queries
from databuild_dagster.model.datasets import DatasetSpec
from databuild_dagster.warehouse import read_table


@click.command()
@click.argument("ref")
@click.option("--limit", type=click.IntRange(0), default=None, help="At most so many rows.")
@as_of
@click.option("--allow-tainted", is_flag=True, help="Read it although it is said to be wrong.")
@common
def read(ref: str, limit: int | None, as_of: str | None, allow_tainted: bool, as_json: bool) -> None:
    """The rows of REF, from the files that its manifest lists."""
    queries = the_queries()
    one = readable_ref(queries, ref, moment(queries, as_of), _why_not, allow_tainted=allow_tainted)
    found = read_table(one.warehouse, [one.manifest], limit=limit)
    rows = found.to_pylist()
    if as_json:
        emit([{name: _plain(cell) for name, cell in row.items()} for row in rows])
        return
    table(found.column_names, [[_shown(cell) for cell in row.values()] for row in rows], empty=f"{ref} has no rows.")


def _why_not(dataset: DatasetSpec, partition_key: str | None) -> str | None:
    """Only now is Dagster worth its import."""
    return the_engine().catalog.why_not(dataset, partition_key)


def _plain(value: Any) -> Any:
    if isinstance(value, datetime.datetime | datetime.date | datetime.time):
        return value.isoformat()
    if isinstance(value, float) and value != value:
        return None
    if isinstance(value, decimal.Decimal | bytes):
        return str(value)
    return value


def _shown(value: Any) -> Any:
    return f"{value:.6g}" if isinstance(value, float) else _plain(value)
