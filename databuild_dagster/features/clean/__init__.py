"""Data that no reader needs is removed: replaced instances, leftovers, orphans."""

from databuild_dagster.feature import Column, Command, Feature

FEATURE = Feature(
    package=__name__,
    summary="`databuild gc` removes data that no reader needs.",
    checks=Column("orphan_files:CHECKS"),
    commands=(
        Command("gc", "commands:gc", "Remove replaced data, or what failed attempts left.", "Maintain", "Maintain"),
    ),
)
