"""Data that no reader needs is removed: replaced instances, leftovers, orphans."""

from databuild_dagster.feature import Command, Feature

FEATURE = Feature(
    name="clean",
    summary="`databuild gc` removes data that no reader needs.",
    commands=(
        Command(
            "gc",
            "databuild_dagster.features.clean.commands:gc",
            "Remove replaced data, or what failed attempts left.",
            section="Maintain",
            after="Maintain",
        ),
    ),
)
