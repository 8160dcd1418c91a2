"""The warehouses that a store knows."""

from __future__ import annotations

from databuild_dagster.store.queries.queries import Queries
from databuild_dagster.warehouse.layout import MANIFEST_NAME, Warehouse


def warehouses_of(queries: Queries, default: str) -> list[Warehouse]:
    """The warehouses of recorded instances, and the default one."""
    roots = {Warehouse(default).root: Warehouse(default)}
    for asset, folder in queries.dataset_folders():
        warehouse = Warehouse.of_manifest(f"{folder}/data/instance=…/{MANIFEST_NAME}", asset)
        if warehouse.dataset_dir(asset) == folder:
            roots.setdefault(warehouse.root, warehouse)
    return list(roots.values())
