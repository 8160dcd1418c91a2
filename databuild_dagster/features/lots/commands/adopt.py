"""`databuild adopt`: files that exist already become live partitions, where they lie."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from databuild_dagster.cli.definitions import deployed_dataset
from databuild_dagster.cli.options import Where, definitions, tabular
from databuild_dagster.cli.output import count, emit, listing, shown
from databuild_dagster.model.records import Column

if TYPE_CHECKING:
    from databuild_dagster.features.lots.arrivals.adoption import Adopter, Adoption


COLUMNS = (
    Column("ref"),
    Column("files"),
    Column("rows"),
    Column("bytes", text="{:,}".format),
    Column("the first", "first_file"),
)


@click.command()
@click.argument("asset")
@click.option(
    "--files",
    "pattern",
    required=True,
    metavar="PATTERN",
    help="Where the files of a partition lie, a path or url: '/data/day={partition_key}/*.parquet', "
    "'s3://bucket/{partition_key:%Y/%m/%d}/*.parquet', with dimensions '…/{date}/{region}/*.parquet'.",
)
@click.option(
    "--partitions",
    multiple=True,
    metavar="KEY|FROM..TO",
    help="Only this partition, which must have files. Repeatable.",
)
@click.option(
    "--live",
    "if_live",
    type=click.Choice(["refuse", "keep", "replace"]),
    default="refuse",
    show_default=True,
    help="How to treat partitions that are live with other data.",
)
@click.option("--allow-schema-change", is_flag=True, help="Allow partitions whose columns differ.")
@click.option("--dry-run", is_flag=True, help="Check everything and record nothing.")
@definitions
@tabular
def adopt(
    asset: str,
    pattern: str,
    partitions: tuple[str, ...],
    if_live: str,
    allow_schema_change: bool,
    dry_run: bool,
    where: Where,
    as_json: bool,
) -> None:
    """Record existing Parquet files as partitions of ASSET.

    The files are listed, and neither copied nor moved; databuild never removes them. Partitions that are live
    from the same files do not change, so you can repeat the command when there are more files.
    """
    from databuild_dagster.features.lots.arrivals.adoption import IfLive

    adoption = _adopter(asset, where).adopt(
        pattern, partitions, if_live=IfLive(if_live), allow_schema_change=allow_schema_change, dry_run=dry_run
    )
    found = _as_json(adoption, dry_run=dry_run)
    if as_json:
        emit(found)
        return
    if dry_run:
        listing(found["recorded"], COLUMNS, empty="Nothing would be recorded.")
        click.echo("")
    _summarize(adoption, dry_run=dry_run)


def _adopter(asset: str, where: Where) -> Adopter:
    from databuild_dagster.bindings.adapter.sqlite_tuning import tune_dagster_writes
    from databuild_dagster.features.lots.arrivals.adoption import Adopter

    tune_dagster_writes()
    deployed = deployed_dataset(asset, where)
    return Adopter(deployed.engine, deployed.instance, deployed.dataset, deployed.warehouse)


def _summarize(adoption: Adoption, *, dry_run: bool) -> None:
    files = sum(len(partition.files) for partition in adoption.recorded)
    rows = sum(partition.rows for partition in adoption.recorded)
    said = "would be live" if dry_run else "live"
    if adoption.recorded:
        partitions = count(len(adoption.recorded), "partition")
        click.echo(f"{partitions} {said} from {count(files, 'file')}, {count(rows, 'row')}.")
    else:
        click.echo("Nothing to record.")
    if adoption.same:
        click.echo(f"{count(len(adoption.same), 'partition')} live from the same files before.")
    if adoption.kept:
        click.echo(
            f"{count(len(adoption.kept), 'partition')} live with other data, and kept so: {shown(adoption.kept)}."
        )
    if adoption.without_files:
        click.echo(f"{count(len(adoption.without_files), 'partition')} without files: {shown(adoption.without_files)}.")


def _as_json(adoption: Adoption, *, dry_run: bool) -> dict[str, Any]:
    return {
        "dry_run": dry_run,
        "recorded": [
            {
                "ref": found.ref,
                "rows": found.rows,
                "bytes": found.bytes,
                "origin": found.origin,
                "files": len(found.files),
                "first_file": found.files[0].uri,
            }
            for found in adoption.recorded
        ],
        "same": adoption.same,
        "kept": adoption.kept,
        "without_files": adoption.without_files,
    }
