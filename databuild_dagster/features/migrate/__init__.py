"""The source of a Dagster project becomes a list of what to change in it."""

from databuild_dagster.feature import Command, Feature

FEATURE = Feature(
    name="migrate",
    summary="`databuild migrate-project` lists the changes of a Dagster project.",
    commands=(
        Command(
            "migrate-project",
            "databuild_dagster.features.migrate.commands:migrate_project",
            "Show what to change in a Dagster project in PATH.",
            section="Start",
            after="init",
        ),
    ),
)
