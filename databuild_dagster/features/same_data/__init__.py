"""Equal rows make nothing stale (rule 4.8), and equal code and inputs need no build (rule 4.9)."""

from databuild_dagster.feature import Column, Feature

FEATURE = Feature(
    package=__name__,
    summary="Rebuilt rows that are equal make nothing stale, and earlier instances may come back in place of builds.",
    needs=("compare",),
    asset_settings=Column("settings:ASSET_SETTINGS"),
    duties=Column("showing_returned:DUTIES"),
    provides=Column("returning:PROVIDERS"),
)
