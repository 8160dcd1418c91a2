"""Content hashes of what builds write, so that equal rows make nothing stale (rule 4.8)."""

from databuild_dagster.feature import Column, Feature

FEATURE = Feature(
    package=__name__,
    summary="Rebuilt rows that are equal make nothing downstream stale.",
    needs=("compare",),
    asset_settings=Column("settings:ASSET_SETTINGS"),
)
