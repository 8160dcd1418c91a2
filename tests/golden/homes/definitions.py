"""The shop whose homes earlier versions have made; tests/golden/README.md has the commands."""

import dagster as dg
import pandas as pd

from databuild_dagster import BuildContext, build_definitions, databuild_asset

daily = dg.DailyPartitionsDefinition("2024-01-01", end_date="2024-01-06")


@databuild_asset(partitions_def=daily)
def orders(context: BuildContext) -> pd.DataFrame:
    if context.partition_key == "2024-01-04":
        raise ValueError("the shop sent no file")
    return pd.DataFrame({"item": ["bread", "cheese"], "amount": [float(context.partition_key[-1]), 2.5]})


@databuild_asset(partitions_def=daily)
def revenue(orders: pd.DataFrame) -> pd.DataFrame:
    return pd.DataFrame({"revenue": [orders["amount"].sum()]})


defs = build_definitions([orders, revenue])
