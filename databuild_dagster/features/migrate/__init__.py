"""The source of a Dagster project becomes a list of what to change in it."""

from databuild_dagster.feature import Feature

FEATURE = Feature(
    name="migrate",
    summary="`databuild migrate-project` lists the changes of a Dagster project.",
)
