"""`databuild lot`: what lets lots of a boundary arrive, one of them by hand, or all that lies in the landing folder."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from databuild_dagster.cli.definitions import deployed_dataset, load_deployed, register_all
from databuild_dagster.cli.options import Where, common, definitions
from databuild_dagster.cli.output import answer, count, emit
from databuild_dagster.cli.process import FAILED, REFUSED, Exit
from databuild_dagster.cli.state import the_engine, the_instance
from databuild_dagster.model.errors import DatabuildError, InvalidRequest
from databuild_dagster.shapes.fields import error_as_json

if TYPE_CHECKING:
    from databuild_dagster.features.lots.arrivals.arrival import Arrived
    from databuild_dagster.features.lots.arrivals.watcher import Look


class NothingWatched(InvalidRequest):
    """No landing folder is watched for {what}."""

    hint = "Declare where its files land: databuild_boundary(…, files=…); `databuild lot arrive` needs no folder."


@click.command()
@click.argument("dataset")
@click.argument("lot")
@click.argument("uris", nargs=-1, metavar="[URI]...")
@click.option("--empty", is_flag=True, help="Record that the lot has no data, on purpose.")
@click.option("--replace", "replace_all", is_flag=True, help="Replace the lot's files; without it the files are added.")
@click.option("--allow-schema-change", is_flag=True, help="Allow columns that differ from those of other lots.")
@definitions
@common
def arrive(
    dataset: str,
    lot: str,
    uris: tuple[str, ...],
    empty: bool,
    replace_all: bool,
    allow_schema_change: bool,
    where: Where,
    as_json: bool,
) -> None:
    """Record that LOT of DATASET arrived as Parquet files.

    LOT is a lot id or a partition key; a URI is a file, a folder, a pattern or a url. The files are listed, and neither
    copied nor moved. For a lot that has arrived before, files that it never had are late data: a new instance of it.
    """
    from databuild_dagster.bindings.adapter.sqlite_tuning import tune_dagster_writes
    from databuild_dagster.features.lots.arrivals.arrival import Arriver

    tune_dagster_writes()
    deployed = deployed_dataset(dataset, where)
    arriver = Arriver(deployed.engine, deployed.instance, deployed.dataset, deployed.warehouse)
    arrived = arriver.arrive(lot, uris, empty=empty, replace_all=replace_all, allow_schema_change=allow_schema_change)
    answer(_as_json(arrived), _in_words(arrived), as_json=as_json)


@click.command()
@click.argument("dataset", required=False)
@definitions
@common
def look(dataset: str | None, where: Where, as_json: bool) -> None:
    """Record the files that wait in landing folders.

    The command looks once, as the sensor of the boundary does at each interval while Dagster's daemon runs.
    """
    from databuild_dagster.features.lots.arrivals.arrival_sensors import look_once, summary, warnings, watched

    instance = the_instance()
    locations = load_deployed(where)
    register_all(the_engine(), locations)
    looks: dict[str, Look] = {}
    refused: dict[str, DatabuildError] = {}
    for location in locations:
        assert location.deployment is not None, "only locations with a deployment are opened"
        for asset, boundary in watched(location.repository):
            if dataset not in (None, asset):
                continue
            try:
                looks[asset] = look_once(instance, location.repository, location.deployment, asset, boundary)
            # Such as a folder that is not there: the other datasets are looked at all the same.
            except DatabuildError as error:
                refused[asset] = error
    if not looks and not refused:
        if dataset is not None:
            deployed_dataset(dataset, where)
        raise NothingWatched(what=dataset or "any dataset of these definitions")
    if as_json and looks:
        # One document: the refusals are entries of the list.
        errors = [{"dataset": asset, "error": error_as_json(error)} for asset, error in refused.items()]
        emit([*(_look_as_json(asset, looked) for asset, looked in looks.items()), *errors])
        if refused:
            raise Exit(REFUSED)
    else:
        for asset, looked in looks.items():
            click.echo(f"{asset}: {summary(looked)}")
            for sentence in warnings(looked):
                click.echo(f"  {sentence}")
    if refused:
        raise next(iter(refused.values()))
    if any(looked.held or looked.unclear for looked in looks.values()):
        raise Exit(FAILED)


def _look_as_json(asset: str, look: Look) -> dict[str, object]:
    return {
        "dataset": asset,
        "recorded": [recorded.ref for recorded in look.recorded],
        "empty": [recorded.ref for recorded in look.recorded if not recorded.files],
        "new_files": sum(len(recorded.files) - recorded.n_kept for recorded in look.recorded),
        "late": look.late,
        "held": look.held,
        "strangers": look.strangers,
        "unclear": look.unclear,
        "unsettled": look.unsettled,
        "more": look.more,
    }


def _in_words(arrived: Arrived) -> str:
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
