"""`databuild lot`: lots by dataset, and lots of a boundary that arrive by hand or from its landing folder (rules 10)."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, NamedTuple

import click
import msgspec

from databuild_dagster.cli.definitions import deployed_dataset, load_deployed, register_all
from databuild_dagster.cli.options import Where, common, definitions, tabular
from databuild_dagster.cli.output import answer, count, emit, listing
from databuild_dagster.cli.process import FAILED, REFUSED, Exit
from databuild_dagster.cli.state import the_engine, the_instance, the_queries
from databuild_dagster.model.errors import DatabuildError, InvalidRequest
from databuild_dagster.model.records import Column, columns_of, error_as_json
from databuild_dagster.model.refs import Ref, partition_key_of
from databuild_dagster.model.states import InstanceState
from databuild_dagster.store.queries.canonical import Canonical
from databuild_dagster.store.queries.queries import Queries

if TYPE_CHECKING:
    from databuild_dagster.bindings.registry.window_keys import Lots
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


class LotView(NamedTuple):
    """A lot of which something is recorded."""

    #: Its id, or its partition key if it has none.
    name: str
    start: float
    #: What its manifest says where it is live, else the state of its canonical instance.
    state: str
    canonical: Canonical

    @property
    def is_there(self) -> bool:
        return self.canonical.state is InstanceState.LIVE


class LotsOfDataset(msgspec.Struct, frozen=True):
    """The lots of a dataset by state; `gaps` counts the absent lots."""

    dataset: Annotated[str, Column()]
    unit: Annotated[str, Column()]
    timezone: Annotated[str, Column(wide_only=True)]
    states: Annotated[
        dict[str, int],
        Column("lots", text=lambda states: ", ".join(map("{0[1]:,} {0[0]}".format, states.items())) or "-"),
    ]
    earliest: Annotated[str | None, Column()]
    latest: Annotated[str | None, Column()]
    gaps: Annotated[int, Column(text="{:,}".format)]


class ListedLot(msgspec.Struct, frozen=True):
    """A lot that was built or arrived."""

    lot: Annotated[str, Column()]
    state: Annotated[str, Column()]
    ref: Annotated[Ref, Column()]
    uuid: Annotated[str | None, Column("instance")]


@click.command("lots")
@click.argument("dataset", required=False)
@click.option("--list", "listed", is_flag=True, help="List every lot of DATASET that was built or arrived.")
@tabular
def lots(dataset: str | None, listed: bool, as_json: bool) -> None:
    """Count the lots of DATASET, or of all, by state.

    Of DATASET, or of every dataset whose partitions are lots. With DATASET, --json lists its lots.
    """
    from databuild_dagster.bindings.registry.window_keys import lots_if_any, lots_of

    queries = the_queries()
    if dataset is None:
        if listed:
            raise click.UsageError("--list needs a DATASET.")
        specs = sorted(queries.datasets.all().values(), key=lambda spec: spec.asset)
        found = [of_dataset for spec in specs if (of_dataset := lots_if_any(spec)) is not None]
        _tell([_summary(queries, of_dataset, time.time()) for of_dataset in found], as_json=as_json)
        return
    of_dataset = lots_of(queries.datasets.known(dataset))
    if as_json or listed:
        _list(_views(queries, of_dataset), of_dataset.asset, as_json=as_json)
    else:
        _tell([_summary(queries, of_dataset, time.time())], as_json=False)


def _views(queries: Queries, lots: Lots) -> list[LotView]:
    """The recorded lots in the order of time; a key of partitions that the dataset had before is no lot of it."""
    from databuild_dagster.bindings.registry.lot_partitions import NoLotKey

    found = []
    for canonical in queries.canonical.of_dataset(lots.asset):
        key = partition_key_of(canonical.ref) or ""
        try:
            found.append(LotView(lots.name_of(key), lots.start_of(key), _state(canonical), canonical))
        except NoLotKey:
            continue
    return sorted(found, key=lambda view: view.start)


def _state(canonical: Canonical) -> str:
    assert canonical.state is not None, "what is missing has no canonical instance"
    if canonical.state is InstanceState.LIVE:
        return canonical.manifest_state or "complete"
    return canonical.state.value


def _summary(queries: Queries, lots: Lots, now: float) -> LotsOfDataset:
    views = _views(queries, lots)
    there = [view for view in views if view.is_there]
    names: list[str | None] = [view.name for view in there] or [None]
    gaps = lots.n_absent(now, [view.start for view in there])
    states = dict(Counter(view.state for view in views))
    return LotsOfDataset(lots.asset, lots.cadence.unit, lots.cadence.timezone, states, names[0], names[-1], gaps)


def _tell(summaries: Sequence[LotsOfDataset], *, as_json: bool) -> None:
    empty = "No registered dataset has lots: partitions in time, of one dimension."
    listing(summaries, columns_of(LotsOfDataset), empty=empty, as_json=as_json)


def _list(views: list[LotView], asset: str, *, as_json: bool) -> None:
    records = [ListedLot(view.name, view.state, view.canonical.ref, view.canonical.uuid) for view in views]
    listing(records, columns_of(ListedLot), empty=f"Nothing has built a lot of {asset} yet.", as_json=as_json)
