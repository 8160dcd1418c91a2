"""Readers of published tables that are not the writer: each gives the rows of one snapshot."""

from __future__ import annotations

import json
import warnings
from collections.abc import Iterable
from datetime import date
from pathlib import Path
from typing import Any

import polars as pl
import pyarrow as pa
from deltalake import DeltaTable
from pyiceberg.catalog import load_catalog
from pyiceberg.table import Table as IcebergTable
from pyiceberg.table.snapshots import Operation

from databuild_dagster import table as read_all
from databuild_dagster.data.read_plan import NothingLive
from databuild_dagster.model.datasets import TableFormat
from tests.support.published import PublishedWorld

#: A row without its nulls, in which columns that came later have no place.
Row = tuple[tuple[str, str], ...]


def rows_of(found: Iterable[dict[str, Any]]) -> list[Row]:
    return sorted(
        tuple(sorted((name, repr(value)) for name, value in row.items() if value is not None)) for row in found
    )


def rows_as_of(world: PublishedWorld, seq: int) -> list[Row]:
    """The rows that `table` reads, with the key as the table has it."""
    try:
        found = read_all(world.asset, as_of=seq, format="arrow", home=world.home).to_pylist()
    except NothingLive:
        return []
    return rows_of({"day": date.fromisoformat(row.pop("partition_key")), **row} for row in found)


def iceberg_table(world: PublishedWorld) -> IcebergTable:
    # The properties say what the configuration of a test may have changed.
    catalog = load_catalog("databuild", type="sql", uri=f"sqlite:///{world.warehouse.root}/iceberg.db")
    try:
        return catalog.load_table("shop.sales")
    finally:
        catalog.close()


def newest_snapshot(world: PublishedWorld) -> int:
    if world.spec.table.format is TableFormat.ICEBERG:
        return iceberg_table(world).current_snapshot().snapshot_id
    return DeltaTable(world.warehouse.dataset_dir(world.asset)).version()


def snapshots(world: PublishedWorld) -> dict[int, int]:
    """Each readable snapshot, and the seq in its mark."""
    if world.spec.table.format is TableFormat.ICEBERG:
        return {
            found.snapshot_id: int(found.summary.additional_properties["databuild.seq"])
            for found in iceberg_table(world).snapshots()
        }
    history = DeltaTable(world.warehouse.dataset_dir(world.asset)).history()
    return {found["version"]: found["databuild"]["seq"] for found in history}


def keeps_rows(world: PublishedWorld, snapshot: int) -> bool:
    """Whether a snapshot says that it has the rows of the snapshot before."""
    if world.spec.table.format is TableFormat.ICEBERG:
        return iceberg_table(world).snapshot_by_id(snapshot).summary.operation is Operation.REPLACE
    return not any(moved["dataChange"] for moved in moved_files(world, snapshot))


def moved_files(world: PublishedWorld, version: int) -> list[dict[str, Any]]:
    """The files that a version of a Delta table adds and removes."""
    log = Path(world.warehouse.dataset_dir(world.asset), "_delta_log", f"{version:020}.json")
    actions = map(json.loads, log.read_text().splitlines())
    return [moved for action in actions for moved in (action.get("add"), action.get("remove")) if moved is not None]


def rows_by_reader(world: PublishedWorld, snapshot: int) -> dict[str, list[Row]]:
    if world.spec.table.format is TableFormat.ICEBERG:
        table = iceberg_table(world)
        with warnings.catch_warnings():
            # Polars would like a package of its own for planning.
            warnings.simplefilter("ignore")
            by_polars = pl.scan_iceberg(table, snapshot_id=snapshot, reader_override="native").collect()
        by_pyiceberg = table.scan(snapshot_id=snapshot).to_arrow()
        return {"pyiceberg": rows_of(by_pyiceberg.to_pylist()), "polars": rows_of(by_polars.to_dicts())}
    table = DeltaTable(world.warehouse.dataset_dir(world.asset), version=snapshot)
    by_polars = pl.scan_delta(table, use_pyarrow=True).collect()
    by_deltalake = pa.table(table.to_pyarrow_table())
    return {"deltalake": rows_of(by_deltalake.to_pylist()), "polars": rows_of(by_polars.to_dicts())}
