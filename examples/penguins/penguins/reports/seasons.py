"""The reports on a season: a table, and a page for people who read no tables."""

from pathlib import Path

import dagster as dg
import pandas as pd
import polars as pl
from databuild_dagster import build_definitions, databuild_asset

from penguins.partitions import by_season
from penguins.reports.location import reports

#: Below the folder in which `databuild` runs.
PAGES = Path("pages")


@databuild_asset(partitions_def=by_season, group_name="seasons", subscribe="birds", follow_late=True)
def census(birds: pl.DataFrame) -> pl.DataFrame:
    """The nests of each island and species, and the share of them with a full clutch of two eggs."""
    nests = birds.group_by("island", "species")
    return nests.agg(nests=pl.len(), full_clutches=pl.mean("full_clutch").round(3)).sort("island", "species")


@dg.asset(partitions_def=by_season, group_name="seasons")
def season_page(context: dg.AssetExecutionContext, census: pd.DataFrame) -> None:
    """The census of a season as a page in Markdown. A plain Dagster asset."""
    season = context.partition_key
    head = [f"# Season {season}", "", "| island | species | nests | full clutches |", "|---|---|---|---|"]
    rows = [f"| {row.island} | {row.species} | {row.nests} | {row.full_clutches:.0%} |" for row in census.itertuples()]
    PAGES.mkdir(exist_ok=True)
    (PAGES / f"{season}.md").write_text("\n".join([*head, *rows, ""]))


defs = build_definitions([census, season_page], location=reports)
