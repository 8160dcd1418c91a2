"""Iceberg and Delta tables of the live partitions, for other engines."""

from databuild_dagster.feature import Command, Feature

FEATURE = Feature(
    name="tables",
    summary="Datasets are published as Iceberg and Delta tables.",
    commands=(
        Command(
            "publish",
            "databuild_dagster.features.tables.commands:publish",
            "Bring the table of DATASET up to date by hand.",
            section="Maintain",
            after="Maintain",
        ),
    ),
)
