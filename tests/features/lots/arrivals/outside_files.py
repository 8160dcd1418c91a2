"""A deployed code location, and files of another program beside it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import dagster as dg
import pandas as pd
import pytest

from databuild_dagster import read
from databuild_dagster.model.errors import DatabuildError
from databuild_dagster.model.events import LotArrived
from tests.features.lots.deployed_world import DeployedWorld


class OutsideFiles(DeployedWorld):
    """A world, and a folder that is not its warehouse."""

    def __init__(self, instance: dg.DagsterInstance, folder: Any, *assets: Any) -> None:
        super().__init__(instance)
        self.folder = folder
        if assets:
            self.deploy(*assets)

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
        facts = [event.fact for event in self.queries.events.after(0)]
        return [[arrival.ref for arrival in fact.arrivals] for fact in facts if isinstance(fact, LotArrived)]

    def manifests(self) -> list[Path]:
        return sorted(Path(self.warehouse.root).rglob("manifest.json"))

    def numbers(self, ref: str) -> list[float]:
        """The rows that readers see."""
        found: list[float] = read(ref, format="pandas", instance=self.instance).n.tolist()
        return found

    def n_instances(self, ref: str) -> int:
        return len(self.queries.instances.history(ref))
