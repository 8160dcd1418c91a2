"""Iceberg and Delta tables of the live partitions, for other engines."""

from databuild_dagster.feature import Column, Command, Feature

FEATURE = Feature(
    package=__name__,
    summary="Datasets are published as Iceberg and Delta tables.",
    settings=Column("publish:SETTINGS"),
    asset_settings=Column("publish:ASSET_SETTINGS"),
    definers=Column("publish:DEFINERS"),
    duties=Column("table_publishing:DUTIES"),
    checks=Column("comparing:CHECKS"),
    status_parts=Column("status_parts:STATUS_PARTS"),
    measures=Column("status_parts:MEASURES"),
    commands=(
        Command(
            "admin publish", "commands:publish", "Bring the table of DATASET up to date by hand.", "By subject", "tick"
        ),
    ),
    keeps=Column("keeping:KEEPS"),
)
