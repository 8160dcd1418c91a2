"""A deployed code location, and files of another program beside it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import dagster as dg
import pandas as pd
import pytest

from databuild_dagster import build_definitions, read
from databuild_dagster.bindings.registry.instance import engine_for, warehouse_of
from databuild_dagster.bindings.registry.registration import datasets_of
from databuild_dagster.engine.registering import register
from databuild_dagster.model.errors import DatabuildError
from databuild_dagster.model.events import LotArrived
from databuild_dagster.warehouse.layout import Warehouse
from tests.support.catalog import HERE
from tests.support.world import World


class OutsideFiles(World):
    """A world over a Dagster instance, and a folder that is not its warehouse."""

    def __init__(self, instance: dg.DagsterInstance, folder: Any, *assets: Any) -> None:
        self.instance = instance
        self.folder = folder
        self.engine = engine_for(instance)
        self.queries = self.engine.queries
        self.store = self.engine.store
        self.ids = self.engine.new_id  # type: ignore[assignment]
        self.warehouse = Warehouse(warehouse_of(instance))
        if assets:
            self.deploy(*assets)

    def deploy(self, *assets: Any) -> None:
        """Register these assets in place of the ones before."""
        graph = build_definitions(assets, location=HERE).get_repository_def().asset_graph
        found = datasets_of(graph, HERE)
        register(self.engine, HERE, found)
        self.datasets = {dataset.asset: dataset for dataset in found}

    def write(self, path: str, *numbers: float, **columns: object) -> str:
        """Write a file below the folder; its whole path."""
        file = Path(self.folder, path)
        file.parent.mkdir(parents=True, exist_ok=True)
        table = {"n": list(numbers), **columns}
        pd.DataFrame(table, dtype=None if numbers else "float64").to_parquet(file)
        return str(file)

    def refusal(self, kind: type[DatabuildError], act: Any, *arguments: Any, **options: Any) -> DatabuildError:
        """The refusal of an act; nothing is recorded, and no manifest is left."""
        before = self.seq, self.manifests()
        with pytest.raises(kind) as refused:
            act(*arguments, **options)
        assert (self.seq, self.manifests()) == before
        return refused.value

    def arrived(self) -> list[list[str]]:
        """The refs of each event of arrivals."""
        facts = [event.fact for event in self.queries.events(0)]
        return [[arrival.ref for arrival in fact.arrivals] for fact in facts if isinstance(fact, LotArrived)]

    def manifests(self) -> list[Path]:
        return sorted(Path(self.warehouse.root).rglob("manifest.json"))

    def numbers(self, ref: str) -> list[float]:
        """The rows that readers see."""
        found: list[float] = read(ref, format="pandas", instance=self.instance).n.tolist()
        return found

    def n_instances(self, ref: str) -> int:
        return len(self.queries.history(ref))
