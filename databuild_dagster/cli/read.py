"""`databuild read REF`: the rows of what readers see, without Spark."""

from __future__ import annotations

import datetime
import decimal
from typing import Any

import click

from databuild_dagster.cli.options import common
from databuild_dagster.cli.output import emit, table
from databuild_dagster.cli.partitions import canonical_of
from databuild_dagster.cli.state import the_queries
from databuild_dagster.model.errors import Refused
from databuild_dagster.model.refs import asset_of
from databuild_dagster.model.states import InstanceState
from databuild_dagster.warehouse import Warehouse, read_manifest, read_table


class NotLive(Refused):
    """{ref} is {state}, so there is nothing to read."""

    hint = "`databuild build {ref}` makes it live; `databuild show {ref}` says more."


class NotOurs(Refused):
    """{ref} is live, but its data is not in our warehouse: a plain Dagster asset keeps its own."""

    hint = "Read it where its IO manager stored it."


@click.command()
@click.argument("ref")
@click.option("--limit", type=click.IntRange(0), default=None, help="At most so many rows.")
@common
def read(ref: str, limit: int | None, as_json: bool) -> None:
    """The rows of REF, from the files that its manifest lists."""
    canonical = canonical_of(the_queries(), ref)
    if canonical.state is not InstanceState.LIVE:
        raise NotLive(ref=ref, state=canonical.state.value if canonical.state is not None else "missing")
    if canonical.manifest_uri is None:
        raise NotOurs(ref=ref)
    assert canonical.uuid is not None
    asset = asset_of(ref)
    warehouse = Warehouse.of_manifest(canonical.manifest_uri, asset)
    found = read_table(warehouse, [read_manifest(warehouse, asset, canonical.uuid)], limit=limit)
    rows = found.to_pylist()
    if as_json:
        emit([{name: _plain(cell) for name, cell in row.items()} for row in rows])
        return
    table(found.column_names, [[_shown(cell) for cell in row.values()] for row in rows], empty=f"{ref} has no rows.")


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
