"""Iceberg and Delta tables of the live partitions, for other engines."""

from databuild_dagster.feature import Feature

FEATURE = Feature(
    name="tables",
    summary="Datasets are published as Iceberg and Delta tables.",
)
