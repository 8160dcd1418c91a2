"""`databuild lot`: one lot of a boundary."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from databuild_dagster.cli.definitions import deployed_dataset
from databuild_dagster.cli.options import Where, common, definitions
from databuild_dagster.cli.output import count, emit

if TYPE_CHECKING:
    from databuild_dagster.bindings.arriving import Arrived


@click.group()
def lot() -> None:
    """Lots: the partitions of one interval each."""


@lot.command()
@click.argument("dataset")
@click.argument("lot")
@click.argument("uris", nargs=-1, metavar="[URI]...")
@click.option("--empty", is_flag=True, help="There is no data for it, on purpose.")
@click.option("--replace", "anew", is_flag=True, help="These files are all it has; otherwise they are added to it.")
@click.option("--allow-schema-change", is_flag=True, help="Columns may differ from those of other lots.")
@definitions
@common
def arrive(
    dataset: str,
    lot: str,
    uris: tuple[str, ...],
    empty: bool,
    anew: bool,
    allow_schema_change: bool,
    where: Where,
    as_json: bool,
) -> None:
    """Record that LOT of DATASET has arrived, as Parquet files that lie at URI….

    LOT is a lot id or a partition key; a URI is a file, a folder, a pattern or a url. The files are listed, and neither
    copied nor moved. For a lot that has arrived before, files that it never had are late data: a new instance of it.
    """
    from databuild_dagster.bindings.arriving import Arriver
    from databuild_dagster.bindings.tuning import tune_dagster_writes

    tune_dagster_writes()
    deployed = deployed_dataset(dataset, where)
    arriver = Arriver(deployed.engine, deployed.instance, deployed.dataset, deployed.warehouse)
    arrived = arriver.arrive(lot, uris, empty=empty, anew=anew, allow_schema_change=allow_schema_change)
    if as_json:
        emit(_as_json(arrived))
        return
    click.echo(_told(arrived))


def _told(arrived: Arrived) -> str:
    known = f" {count(len(arrived.known), 'file')} known before, or a copy." if arrived.known else ""
    if arrived.recorded is None:
        return f"No news: {arrived.ref} has arrived as instance {arrived.uuid} already.{known}"
    late = ", late data: a new instance," if arrived.is_late else ""
    files, rows = len(arrived.recorded.files), arrived.recorded.rows
    what = f"with {count(files, 'file')}, {count(rows, 'row')}" if rows else "empty"
    return f"{arrived.ref} has arrived{late} {what}.{known}"


def _as_json(arrived: Arrived) -> dict[str, object]:
    return {
        "ref": arrived.ref,
        "uuid": arrived.uuid,
        "recorded": arrived.recorded is not None,
        "late": arrived.is_late and arrived.recorded is not None,
        "files": None if arrived.recorded is None else [file.uri for file in arrived.recorded.files],
        "rows": None if arrived.recorded is None else arrived.recorded.rows,
        "known": arrived.known,
    }
