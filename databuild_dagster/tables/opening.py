"""From the place of a table to its adapter. The libraries are imported here, when a table of their format is opened."""

from __future__ import annotations

from databuild_dagster.model.datasets import DatasetSpec, TableFormat
from databuild_dagster.tables.errors import NotPublished, TableLibraryMissing
from databuild_dagster.tables.port import Place, Table
from databuild_dagster.warehouse.layout import Warehouse

#: Module and extra of each format.
_LIBRARIES = {TableFormat.ICEBERG: ("pyiceberg", "iceberg"), TableFormat.DELTA: ("deltalake", "delta")}


def place_of(dataset: DatasetSpec, warehouse: str) -> Place:
    """The place of a dataset's table; `warehouse` is the home's own. Raises `NotPublished`."""
    if not dataset.table:
        raise NotPublished(asset=dataset.asset)
    return Place(dataset.asset, dataset.table, Warehouse(dataset.table.warehouse or warehouse))


def open_table(place: Place) -> Table:
    """The table of a place. Raises `TableLibraryMissing`, and what the adapter raises."""
    module, extra = _LIBRARIES[place.spec.format]
    try:
        match place.spec.format:
            case TableFormat.ICEBERG:
                from databuild_dagster.tables.iceberg import IcebergTable

                return IcebergTable(place)
            case TableFormat.DELTA:
                from databuild_dagster.tables.delta import DeltaTableHere

                return DeltaTableHere(place)
    except ImportError as error:
        raise TableLibraryMissing(asset=place.asset, module=module, extra=extra) from error
