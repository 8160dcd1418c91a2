"""The source of a Dagster project becomes a list of what to change in it."""

from databuild_dagster.feature import Command, Feature

FEATURE = Feature(
    package=__name__,
    summary="`databuild migrate-project` lists the changes of a Dagster project.",
    commands=(
        Command(
            "migrate-project",
            "commands:migrate_project",
            "Show what to change in a Dagster project in PATH.",
            "Start",
            "init",
        ),
    ),
)
