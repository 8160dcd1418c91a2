"""Alerts about missed SLAs, and metrics."""

from databuild_dagster.feature import Command, Feature

FEATURE = Feature(
    name="notices",
    summary="Alerts are sent for missed SLAs; metrics are shown and exported.",
    commands=(
        Command(
            "ledger metrics",
            "databuild_dagster.features.notices.commands:metrics",
            "Show success rates, and builds and seconds saved.",
            section="By subject",
            after="list",
        ),
    ),
)
