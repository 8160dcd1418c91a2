"""`databuild lot list [DATASET]`: the lots of every dataset that has some, summed up, or those of one by name (rules 10)."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

import click

from databuild_dagster.cli.options import tabular
from databuild_dagster.cli.output import listing
from databuild_dagster.cli.state import the_queries
from databuild_dagster.model.records import Column
from databuild_dagster.model.refs import partition_key_of
from databuild_dagster.model.states import InstanceState
from databuild_dagster.shapes.fields import picked
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


COLUMNS = (
    Column("dataset"),
    Column("unit"),
    Column("timezone", wide_only=True),
    Column("lots", "states", text=lambda states: ", ".join(f"{n:,} {state}" for state, n in states.items()) or "-"),
    Column("earliest"),
    Column("latest"),
    Column("gaps", text="{:,}".format),
)


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


def _summary(queries: Queries, lots: Lots, now: float) -> dict[str, object]:
    views = _views(queries, lots)
    there = [view for view in views if view.is_there]
    return {
        "dataset": lots.asset,
        "unit": lots.cadence.unit,
        "timezone": lots.cadence.timezone,
        "states": dict(Counter(view.state for view in views)),
        "earliest": there[0].name if there else None,
        "latest": there[-1].name if there else None,
        "gaps": lots.n_absent(now, [view.start for view in there]),
    }


def _tell(summaries: Sequence[dict[str, object]], *, as_json: bool) -> None:
    empty = "No registered dataset has lots: partitions in time, of one dimension."
    listing(summaries, COLUMNS, empty=empty, as_json=as_json)


def _list(views: list[LotView], asset: str, *, as_json: bool) -> None:
    records = [{"lot": view.name, "state": view.state, **picked(view.canonical, "ref", "uuid")} for view in views]
    columns = (Column("lot"), Column("state"), Column("ref"), Column("instance", "uuid"))
    listing(records, columns, empty=f"Nothing has built a lot of {asset} yet.", as_json=as_json)
