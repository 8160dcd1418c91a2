"""Data that no reader needs is removed: replaced instances, leftovers, orphans."""

from databuild_dagster.feature import Feature

FEATURE = Feature(
    name="clean",
    summary="`databuild gc` removes data that no reader needs.",
)
