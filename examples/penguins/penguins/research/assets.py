"""The data of the research team: every bird of a colony, with its measurements and the findings from its blood."""

import dagster as dg
import pandas as pd
import pyspark.sql.functions as F
from databuild_dagster import databuild_asset, databuild_boundary
from pyspark.sql import DataFrame

from penguins.fieldwork import LANDING, lab_results_of
from penguins.partitions import by_colony, by_season

observations = databuild_boundary(
    "observations",
    partitions_def=by_season,
    files=f"{LANDING}/{{time:%Y-%m-%d}}_*.parquet",
    settle_seconds=0,  # The field teams rename a file when it is whole.
    group_name="field",
    description="Measurements at the nests of a season, in the files of the field teams.",
)


@dg.asset(partitions_def=by_season, group_name="laboratory")
def lab_results(context: dg.AssetExecutionContext) -> pd.DataFrame:
    """The findings of the laboratory. A plain Dagster asset."""
    return lab_results_of(context.partition_key)


@databuild_asset(
    partitions_def=by_colony,
    group_name="birds",
    batched=True,
    subscribe="observations",
    follow_late=True,
)
def birds(observations: DataFrame, lab_results: DataFrame) -> DataFrame:
    """The birds of one island in one season. `partition_key` is the colony, such as `Biscoe|2007`."""
    # Each colony of a season gets all rows of the season, and keeps those of its island.
    is_here = F.col("island") == F.split_part("partition_key", F.lit("|"), F.lit(1))
    return observations.where(is_here).join(lab_results, ["partition_key", "sample"], "left")
