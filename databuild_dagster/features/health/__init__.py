"""A probe or a monitor asks whether a deployment is well (rule 11.8, decision 0064)."""

from databuild_dagster.feature import Column, Command, Feature

FEATURE = Feature(
    package=__name__,
    summary="`databuild health`, and `/databuild/health/live` and `/ready` for probes.",
    commands=(
        Command(
            "health",
            "commands:health",
            "Check the log, orchestrators, versions and outages.",
            "Start",
            "status",
        ),
    ),
    probes=Column("pages:PROBES"),
)
