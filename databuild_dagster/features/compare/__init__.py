"""Receipts of instances, the differences of two, and samples of rows."""

from databuild_dagster.feature import Column, Feature

FEATURE = Feature(
    name="compare",
    summary="Receipts, differences of two instances, samples of rows.",
    asset_settings=Column("databuild_dagster.features.compare.settings:ASSET_SETTINGS"),
    routes=Column("databuild_dagster.features.compare.pages:ROUTES"),
    pages=Column("databuild_dagster.features.compare.pages:PAGES"),
)
