"""Alerts about missed SLAs, and metrics."""

from databuild_dagster.feature import Column, Feature

FEATURE = Feature(
    name="notices",
    summary="Alerts are sent for missed SLAs; metrics are shown and exported.",
    settings=Column("databuild_dagster.features.notices.settings:SETTINGS"),
)
