"""From the place of a table to its adapter. The libraries are imported here, when a table of their format is opened."""

from importlib.util import find_spec

from databuild_dagster.features.tables.errors import NoPlaceForCatalog, NotPublished, TableLibraryMissing
from databuild_dagster.features.tables.port import Place, Table
from databuild_dagster.model.datasets import DatasetSpec, TableFormat
from databuild_dagster.warehouse.layout import Warehouse
from databuild_dagster.warehouse.storage import protocol_of

#: Module and extra of each format.
_LIBRARIES = {TableFormat.ICEBERG: ("pyiceberg", "iceberg"), TableFormat.DELTA: ("deltalake", "delta")}


def place_of(dataset: DatasetSpec, warehouse: str) -> Place:
    """The place of a dataset's table; `warehouse` is the home's own. Raises `NotPublished`."""
    if not dataset.table:
        raise NotPublished(asset=dataset.asset)
    return Place(dataset.asset, dataset.table, Warehouse(dataset.table.warehouse or warehouse))


def check_can_publish(dataset: DatasetSpec, warehouse: str) -> None:
    """Check the table of a dataset as far as this process shows it: no catalog is asked.

    Raises `TableLibraryMissing`, `UnknownCatalog`, `NoPlaceForCatalog`.
    """
    if not dataset.table:
        return
    place = place_of(dataset, warehouse)
    module, extra = _LIBRARIES[place.spec.format]
    if find_spec(module) is None:
        raise TableLibraryMissing(asset=place.asset, module=module, extra=extra)
    if place.spec.format is TableFormat.ICEBERG and not place.spec.catalog:
        check_has_place(place)
    elif place.spec.catalog:
        from databuild_dagster.features.tables.iceberg import check_is_configured

        check_is_configured(place)


def check_has_place(place: Place) -> None:
    """Check that the catalog without a name can be a file of the warehouse. Raises `NoPlaceForCatalog`."""
    if protocol_of(place.warehouse.root) is not None:
        raise NoPlaceForCatalog(asset=place.asset, root=place.warehouse.root)


def open_table(place: Place) -> Table:
    """The table of a place. Raises `TableLibraryMissing`, and what the adapter raises."""
    module, extra = _LIBRARIES[place.spec.format]
    try:
        match place.spec.format:
            case TableFormat.ICEBERG:
                from databuild_dagster.features.tables.iceberg import IcebergTable

                return IcebergTable(place)
            case TableFormat.DELTA:
                from databuild_dagster.features.tables.delta import DeltaTableHere

                return DeltaTableHere(place)
    except ImportError as error:
        raise TableLibraryMissing(asset=place.asset, module=module, extra=extra) from error
