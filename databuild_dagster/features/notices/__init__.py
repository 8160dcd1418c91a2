"""Alerts and checks about missed SLAs, and metrics."""

from databuild_dagster.feature import Column, Command, Feature

FEATURE = Feature(
    package=__name__,
    summary="Alerts and checks tell about missed SLAs; metrics are shown and exported.",
    settings=Column("alerts:SETTINGS"),
    duties=Column("sla_check:DUTIES"),
    commands=(
        Command(
            "metrics",
            "commands.metrics:metrics",
            "Show success rates, and builds and seconds saved.",
            "Find out",
        ),
    ),
)
