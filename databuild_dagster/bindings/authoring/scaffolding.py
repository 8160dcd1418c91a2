"""`dg scaffold defs databuild_dagster.DatabuildComponent NAME` writes a `defs.yaml` and assets that work."""

import re
from pathlib import Path
from typing import Any

from dagster import Scaffolder, ScaffoldRequest, scaffold_component

from databuild_dagster.bindings.declare.parameters import InvalidAsset

_ASSETS = '''"""The assets of {name}: replace them with yours."""

import dagster as dg
import pandas as pd

from databuild_dagster import BuildContext, databuild_asset

daily = dg.DailyPartitionsDefinition("2024-01-01")


@databuild_asset(partitions_def=daily)
def {name}_raw(context: BuildContext) -> pd.DataFrame:
    """The events of one day; called once per day."""
    return pd.DataFrame({{"day": context.partition_key, "item": ["a", "b"], "amount": [1.5, 2.5]}})


@databuild_asset(partitions_def=daily, batched=True)
def {name}_by_day({name}_raw: pd.DataFrame) -> pd.DataFrame:
    """Called once for all days of a launch; `partition_key` is the day of a row."""
    return {name}_raw.groupby("partition_key", as_index=False)["amount"].sum()
'''


class DatabuildScaffolder(Scaffolder[Any]):
    """Writes a component with two assets; existing files stay untouched."""

    def scaffold(self, request: ScaffoldRequest[Any]) -> None:
        """Raises `InvalidAsset` for a component in Python."""
        if request.scaffold_format == "python":
            raise InvalidAsset(
                "DatabuildComponent is scaffolded as yaml: files beside a component.py are loaded by Dagster as well, and "
                "the assets would be there twice; leave --format out, or name a module outside of defs/ in your own."
            )
        folder = request.target_path.parent if request.append else request.target_path
        path = _free(folder)
        name = re.sub(r"\W", "_", folder.name) + path.stem.removeprefix("assets")
        path.write_text(_ASSETS.format(name=name if name.isidentifier() else f"_{name}"))
        scaffold_component(request, {"assets": [path.name]})


def _free(folder: Path) -> Path:
    """`assets.py`, or the first numbered name that does not exist."""
    number = 1
    while (path := folder / f"assets{'' if number == 1 else f'_{number}'}.py").exists():
        number += 1
    return path
