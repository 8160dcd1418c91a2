"""Alerts about missed SLAs, and metrics."""

from databuild_dagster.feature import Feature

FEATURE = Feature(
    name="notices",
    summary="Alerts are sent for missed SLAs; metrics are shown and exported.",
)
