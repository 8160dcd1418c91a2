"""`databuild lot list [DATASET]`: the lots of every dataset that has some, summed up, or those of one by name (rules 10)."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, NamedTuple

import click
import msgspec

from databuild_dagster.cli.options import tabular
from databuild_dagster.cli.output import listing
from databuild_dagster.cli.state import the_queries
from databuild_dagster.model.records import Column, columns_of
from databuild_dagster.model.refs import Ref, partition_key_of
from databuild_dagster.model.states import InstanceState
from databuild_dagster.store.queries.canonical import Canonical
from databuild_dagster.store.queries.queries import Queries

if TYPE_CHECKING:
    from databuild_dagster.bindings.registry.cadences import Lots


class LotView(NamedTuple):
    """One lot of which something is recorded."""

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
    """The lots of a dataset by state; `gaps` counts the absent ones."""

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
    from databuild_dagster.bindings.registry.cadences import lots_if_any, lots_of

    queries = the_queries()
    if dataset is None:
        if listed:
            raise click.UsageError("--list needs a DATASET.")
        specs = sorted(queries.datasets().values(), key=lambda spec: spec.asset)
        found = [of_dataset for spec in specs if (of_dataset := lots_if_any(spec)) is not None]
        _tell([_summary(queries, of_dataset, time.time()) for of_dataset in found], as_json=as_json)
        return
    of_dataset = lots_of(queries.known_dataset(dataset))
    if as_json or listed:
        _list(_views(queries, of_dataset), of_dataset.asset, as_json=as_json)
    else:
        _tell([_summary(queries, of_dataset, time.time())], as_json=False)


def _views(queries: Queries, lots: Lots) -> list[LotView]:
    """The recorded lots in the order of time; a key of partitions that the dataset had before is no lot of it."""
    from databuild_dagster.bindings.registry.lot_partitions import NoLotKey

    found = []
    for canonical in queries.canonical_of_dataset(lots.asset):
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
