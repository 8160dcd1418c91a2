"""Receipts of instances, the differences of two, and samples of rows."""

from databuild_dagster.feature import Command, Feature

FEATURE = Feature(
    name="compare",
    summary="Receipts, differences of two instances, samples of rows.",
    commands=(
        Command(
            "receipt",
            "databuild_dagster.features.compare.commands.receipt:receipt",
            "Show what the instances of REFS were made of.",
            section="Find out",
            after="read",
        ),
        Command(
            "diff",
            "databuild_dagster.features.compare.commands.diff:diff",
            "Compare two instances of REF: inputs, code, rows, columns.",
            section="Find out",
            after="receipt",
        ),
    ),
)
