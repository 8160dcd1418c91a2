"""A person lists outages, holds launches back, or releases them (rule 6.17)."""

from databuild_dagster.feature import Column, Command, Feature

FEATURE = Feature(
    package=__name__,
    summary="`databuild outage` lists outages, and a person can hold launches back.",
    commands=(
        Command(
            "outage list",
            "commands:list_outages",
            "Show what is out of reach, and what waits for it.",
            "By subject",
            "log",
            group="List what is out of reach, and hold launches back.",
        ),
        Command("outage hold", "commands:hold_launches", "Hold back launches that need WHAT.", "By subject", "list"),
        Command("outage release", "commands:release_launches", "Launch what needs WHAT again.", "By subject", "hold"),
    ),
    measures=Column("measures:MEASURES"),
)
