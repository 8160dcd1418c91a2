"""What follows from a supposition, with nothing recorded."""

from databuild_dagster.feature import Column, Command, Feature

FEATURE = Feature(
    package=__name__,
    summary="The consequences of a taint, of new code or of missing data are simulated.",
    commands=(
        Command("plan --if-tainted", "commands:taint", "Show what follows if the data of REFS is tainted."),
        Command("plan --if-new-code", "commands:code", "Show what new code of ASSET builds again."),
        Command("plan --if-missing", "commands:missing", "Show what waits if REFS never arrive."),
    ),
    routes=Column("pages:ROUTES"),
)
