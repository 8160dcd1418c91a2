"""The reports on a species, over all seasons and islands."""

import dagster as dg
import pandas as pd
from databuild_dagster import BuildContext, build_definitions, databuild_asset

from penguins.partitions import by_species
from penguins.reports.location import reports

MEASURES = ["bill_length_mm", "bill_depth_mm", "flipper_length_mm", "body_mass_g"]


@databuild_asset(
    partitions_def=by_species,
    group_name="species",
    # A species and a colony have no key in common: each species reads all colonies.
    ins={"birds": dg.AssetIn(partition_mapping=dg.AllPartitionMapping())},
    subscribe="birds",
    follow_late=True,
)
def profile(birds: pd.DataFrame, context: BuildContext) -> pd.DataFrame:
    """The mean sizes of the females and of the males."""
    of_species = birds[birds.species == context.partition_key]
    return of_species.groupby("sex")[MEASURES].mean().round(1).reset_index()


defs = build_definitions([profile], location=reports)
