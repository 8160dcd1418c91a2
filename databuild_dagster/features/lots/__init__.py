"""Lots that arrive as files, arcs, parts, gap reports, and the copies that other tools read."""

from databuild_dagster.feature import Column, Feature

FEATURE = Feature(
    name="lots",
    summary="Files of other programs become lots; gap reports; lots in parts; copies for other tools.",
    asset_settings=Column("databuild_dagster.features.lots.settings:ASSET_SETTINGS"),
    definers=Column("databuild_dagster.features.lots.settings:DEFINERS"),
    routes=Column("databuild_dagster.features.lots.pages:ROUTES"),
    pages=Column("databuild_dagster.features.lots.pages:PAGES"),
)
