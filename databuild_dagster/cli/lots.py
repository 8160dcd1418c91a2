"""`databuild lot list [DATASET]`: the lots of every dataset that has some, summed up, or those of one by name (rules 10)."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

import click

from databuild_dagster.cli.options import tabular
from databuild_dagster.cli.output import Column, listing
from databuild_dagster.cli.state import the_queries
from databuild_dagster.model.datasets import DatasetSpec
from databuild_dagster.model.lots import Lot
from databuild_dagster.model.refs import partition_key_of
from databuild_dagster.model.states import InstanceState
from databuild_dagster.shapes.fields import picked
from databuild_dagster.store.queries.canonical import Canonical
from databuild_dagster.store.queries.queries import Queries


class LotView(NamedTuple):
    """One lot of which something is recorded."""

    lot: Lot
    #: What its manifest says where it is live, else the state of its canonical instance.
    state: str
    canonical: Canonical

    @property
    def is_there(self) -> bool:
        return self.canonical.state is InstanceState.LIVE


COLUMNS = (
    Column("dataset"),
    Column("unit"),
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
    from databuild_dagster.bindings.registry.lot_partitions import lot_keys_if_any

    queries = the_queries()
    if dataset is None:
        if listed:
            raise click.UsageError("--list needs a DATASET.")
        specs = sorted(queries.datasets().values(), key=lambda spec: spec.asset)
        _tell([_summary(queries, spec, time.time()) for spec in specs if lot_keys_if_any(spec)], as_json=as_json)
        return
    spec = queries.known_dataset(dataset)
    if as_json or listed:
        _list(_lots_of(queries, spec), spec, as_json=as_json)
    else:
        _tell([_summary(queries, spec, time.time())], as_json=False)


def _lots_of(queries: Queries, spec: DatasetSpec) -> list[LotView]:
    """In the order of time; a key of partitions that the dataset had before is no lot of it. Raises `NoLots`."""
    from databuild_dagster.bindings.registry.lot_partitions import NoLotKey, lot_keys_of

    keys = lot_keys_of(spec)
    found = []
    for canonical in queries.canonical_of_dataset(spec.asset):
        try:
            lot = keys.lot_of(partition_key_of(canonical.ref) or "")
        except NoLotKey:
            continue
        found.append(LotView(lot, _state(canonical), canonical))
    return sorted(found, key=lambda view: view.lot.index)


def _state(canonical: Canonical) -> str:
    assert canonical.state is not None, "what is missing has no canonical instance"
    if canonical.state is InstanceState.LIVE:
        return canonical.manifest_state or "complete"
    return canonical.state.value


def _summary(queries: Queries, spec: DatasetSpec, now: float) -> dict[str, object]:
    """Raises `NoLots`."""
    from databuild_dagster.bindings.registry.lot_partitions import lot_keys_of

    keys = lot_keys_of(spec)
    views = _lots_of(queries, spec)
    existing = keys.existing(now)
    left_out = keys.left_out(existing)
    there = [view for view in views if view.is_there]
    n_expected_there = sum(view.lot in existing and view.lot.index not in left_out for view in there)
    return {
        "dataset": spec.asset,
        "unit": keys.unit.token,
        "states": dict(Counter(view.state for view in views)),
        "earliest": str(there[0].lot) if there else None,
        "latest": str(there[-1].lot) if there else None,
        "gaps": len(existing) - len(left_out) - n_expected_there,
    }


def _tell(summaries: Sequence[dict[str, object]], *, as_json: bool) -> None:
    empty = "No registered dataset has lots: partitions in UTC of 5, 10 or 15 minutes, an hour or a day."
    listing(summaries, COLUMNS, empty=empty, as_json=as_json)


def _list(views: list[LotView], spec: DatasetSpec, *, as_json: bool) -> None:
    records = [{"lot": str(view.lot), "state": view.state, **picked(view.canonical, "ref", "uuid")} for view in views]
    columns = (Column("lot"), Column("state"), Column("ref"), Column("instance", "uuid"))
    listing(records, columns, empty=f"Nothing has built a lot of {spec.asset} yet.", as_json=as_json)
