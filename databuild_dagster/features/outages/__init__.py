"""A person lists outages, holds launches back, or releases them (rule 6.17)."""

from databuild_dagster.feature import Column, Command, Feature

FEATURE = Feature(
    package=__name__,
    summary="`databuild status --outages` lists outages, and a person can hold launches back.",
    commands=(
        Command("status --outages", "commands:list_outages", "Show what is out of reach, and what waits for it."),
        Command("pause --needs", "commands:hold_launches", "Hold back launches that need WHAT."),
        Command("resume --needs", "commands:release_launches", "Launch what needs WHAT again."),
    ),
    measures=Column("measures:MEASURES"),
)
