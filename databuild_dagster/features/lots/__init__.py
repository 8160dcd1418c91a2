"""Lots that arrive as files, arcs, parts, gap reports, and the copies that other tools read."""

from databuild_dagster.feature import Column, Command, Feature

FEATURE = Feature(
    package=__name__,
    summary="Files of other programs become lots; gap reports; lots in parts; copies for other tools.",
    asset_settings=Column("settings:ASSET_SETTINGS"),
    definers=Column("settings:DEFINERS"),
    duties=Column("duties:DUTIES"),
    checks=Column("checks:CHECKS"),
    commands=(
        Command(
            "adopt",
            "commands.adopt:adopt",
            "Record existing Parquet files as partitions of ASSET.",
            "Correct",
            "resume",
        ),
        Command(
            "lot list",
            "commands.lot:lots",
            "Count the lots of DATASET, or of all, by state.",
            "By subject",
            "log",
            group="List lots, gaps and subscriptions, and record arrivals.",
        ),
        Command(
            "lot gaps", "commands.gaps:gaps", "Show which lots of DATASET are missing, and why.", "By subject", "list"
        ),
        Command(
            "lot arrive",
            "commands.lot:arrive",
            "Record that LOT of DATASET arrived as Parquet files.",
            "By subject",
            "gaps",
        ),
        Command("lot arrive --landed", "commands.lot:look", "Record the files that wait in landing folders."),
        Command(
            "lot list --subscriptions", "commands.arc:list_arcs", "Count the lots of assets that subscribe, by state."
        ),
    ),
    routes=Column("pages:ROUTES"),
    pages=Column("pages:PAGES"),
    keeps=Column("copy_keeper:KEEPS"),
)
