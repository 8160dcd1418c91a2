"""Receipts of instances, the differences of two, and samples of rows."""

from databuild_dagster.feature import Column, Command, Feature

FEATURE = Feature(
    package=__name__,
    summary="Receipts, differences of two instances, samples of rows.",
    needs=("tables",),
    asset_settings=Column("settings:ASSET_SETTINGS"),
    commands=(
        Command("show --full", "commands.receipt:receipt", "Show what the instances of REFS were made of."),
        Command(
            "diff",
            "commands.diff:diff",
            "Compare REFS with before: inputs, code, rows, columns.",
            "Find out",
            "read",
        ),
    ),
    routes=Column("pages:ROUTES"),
    pages=Column("pages:PAGES"),
)
