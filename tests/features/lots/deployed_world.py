"""A world over a Dagster instance: what happens to its refs is told as in any world, and its assets are real."""

from __future__ import annotations

from typing import Any

import dagster as dg

from databuild_dagster import build_definitions
from databuild_dagster.bindings.registry.instance import engine_for, warehouse_of
from databuild_dagster.bindings.registry.registration import datasets_of
from databuild_dagster.engine.registering import register
from databuild_dagster.warehouse.layout import Warehouse
from tests.support.catalog import HERE
from tests.support.world import World


class DeployedWorld(World):
    """One code location, whose instances are in the warehouse of the Dagster instance unless another is given."""

    def __init__(self, instance: dg.DagsterInstance, warehouse: str | None = None) -> None:
        self.instance = instance
        self.engine = engine_for(instance)
        self.queries = self.engine.queries
        self.store = self.engine.store
        self.ids = self.engine.new_id  # type: ignore[assignment]
        self.warehouse = Warehouse(warehouse or warehouse_of(instance))

    def deploy(self, *assets: Any) -> None:
        """Register these assets in place of the ones before."""
        graph = build_definitions(assets, location=HERE).get_repository_def().asset_graph
        found = datasets_of(graph, HERE)
        register(self.engine, HERE, found)
        self.datasets = {dataset.asset: dataset for dataset in found}
