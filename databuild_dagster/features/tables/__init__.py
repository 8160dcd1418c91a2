"""Iceberg and Delta tables of the live partitions, for other engines."""

from databuild_dagster.feature import Column, Feature

FEATURE = Feature(
    name="tables",
    summary="Datasets are published as Iceberg and Delta tables.",
    settings=Column("databuild_dagster.features.tables.settings:SETTINGS"),
    asset_settings=Column("databuild_dagster.features.tables.settings:ASSET_SETTINGS"),
    definers=Column("databuild_dagster.features.tables.settings:DEFINERS"),
)
