"""The asset that docs/how-to/existing-assets.md takes over: its IO manager writes a Parquet file for each day."""

from pathlib import Path

import dagster as dg
import pandas as pd

daily = dg.DailyPartitionsDefinition("2024-01-01", end_date="2024-01-08")


class ParquetFiles(dg.ConfigurableIOManager):
    folder: str = "data"

    def path(self, context: dg.InputContext | dg.OutputContext) -> Path:
        return Path(self.folder, *context.asset_key.path, f"day={context.partition_key}", "data.parquet")

    def handle_output(self, context: dg.OutputContext, obj: pd.DataFrame) -> None:
        self.path(context).parent.mkdir(parents=True, exist_ok=True)
        obj.to_parquet(self.path(context))

    def load_input(self, context: dg.InputContext) -> pd.DataFrame:
        return pd.read_parquet(self.path(context))


@dg.asset(partitions_def=daily, io_manager_key="files")
def orders(context: dg.AssetExecutionContext) -> pd.DataFrame:
    return pd.DataFrame({"day": [context.partition_key], "amount": [10.0]})


@dg.asset(partitions_def=daily)
def report(orders: pd.DataFrame) -> str:
    return orders.to_csv()


defs = dg.Definitions([orders, report], resources={"files": ParquetFiles()})
